"""What can go wrong at the fake Qdrant server, and where."""

from __future__ import annotations

from typing import Literal, get_args

from embedmill.testing.fault_plan import CommonDeed, PlannedFault

Route = Literal[
    "root",
    "collections.list",
    "collections.get",
    "collections.exists",
    "collections.create",
    "collections.update",
    "collections.delete",
    "index.create",
    "points.upsert",
    "points.delete",
    "points.retrieve",
    "points.scroll",
    "points.count",
    "points.query",
    "aliases.list",
    "aliases.of",
    "aliases.update",
]
ROUTES: tuple[Route, ...] = get_args(Route)
Deed = Literal[
    CommonDeed,
    # Instead of the work.
    "rate-limit",
    "error",
    "bad-key",
    "forbidden",
    "read-only",
    "disk-full",
    "not-found",
    "poison",
    "too-many",
    # The work is done; the reply is not what it should be.
    "error-reply",
    "acknowledged",
    "wait-timeout",
    # Upserts and deletions: some of the work is done.
    "partial",
    "silent-drop",
    # Counts.
    "lag",
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route.
        do: what goes wrong.
        count: points: that are lost, that a count lacks, that are too many.
        value: a status, a ``Retry-After``, or the text of a payload that is poison.
    """

    at: Route
    do: Deed
