"""What can go wrong at the fake Voyage server, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault, VectorDeed

Route = Literal[
    "embeddings",
    "files.create",
    "files.list",
    "files.get",
    "files.content",
    "files.delete",
    "batches.create",
    "batches.list",
    "batches.get",
    "batches.cancel",
    # Not a route: the n-th job that is created.
    "job",
]
Deed = Literal[
    CommonDeed,
    # Any route, instead of the work.
    "rate-limit",
    "rate-limit-page",
    "bad-key",
    "no-money",
    "error",
    "not-found",
    "too-large",
    VectorDeed,
    # files.content: ``count`` bytes, then the connection ends.
    "cut",
    # job: how it ends. ``expire``: after ``count`` rows; the others are in its error file.
    "fail",
    "expire",
    "stay",
    # job: its result rows
    "reject-rows",
    "fail-rows",
    "broke-rows",
    "miss-rows",
    "double-rows",
    "unknown-row",
    "nan-rows",
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route, or ``job``.
        do: what goes wrong; ``rate-limit-page`` comes from a proxy, without JSON.
        value: a ``Retry-After``, or the status of an ``error``.
    """

    at: Route
    do: Deed
