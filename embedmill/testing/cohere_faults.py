"""What can go wrong at the fake Cohere server, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault

Route = Literal[
    "embed",
    "datasets.create",
    "datasets.list",
    "datasets.get",
    "datasets.part",
    "jobs.create",
    "jobs.list",
    "jobs.get",
    "jobs.cancel",
    "batches.create",
    "batches.list",
    "batches.get",
    "batches.cancel",
    # Not a route: the n-th job or batch that is created.
    "job",
]
Deed = Literal[
    CommonDeed,
    # Any route, instead of the work.
    "rate-limit",
    "bad-key",
    "no-money",
    "error",
    "not-found",
    "too-large",
    # datasets.create: its validation fails, for the reason in ``value``.
    "refuse-dataset",
    # datasets.part: the signed address has expired; ``count`` bytes, then the connection ends;
    # ``count`` bytes, and no more are promised.
    "expired-link",
    "cut",
    "short",
    # job: how it ends
    "fail",
    "stay",
    # job: its rows
    "miss-rows",
    "double-rows",
    "unknown-row",
    "nan-rows",
    # job: its rows, of a batch alone
    "fail-rows",
    "reject-rows",
    # embed. There is no index to be wrong: what is shuffled are texts and vectors alike.
    "shuffled-reply",
    "short-reply",
    "nan-reply",
    "narrow-reply",
    "empty-reply",
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route, or ``job``.
        do: what goes wrong.
        value: a ``Retry-After``, or the status of ``error`` or ``bad-key`` (401, 403, 498).
    """

    at: Route
    do: Deed
