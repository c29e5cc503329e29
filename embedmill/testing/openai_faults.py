"""What can go wrong at the fake OpenAI server, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault, VectorDeed

Route = Literal[
    "files.create",
    "files.list",
    "files.get",
    "files.content",
    "files.delete",
    "batches.create",
    "batches.list",
    "batches.get",
    "batches.cancel",
    "embeddings",
    # Not a route: the n-th job that is created.
    "job",
]
Deed = Literal[
    CommonDeed,
    # Any route, instead of the work.
    "rate-limit",
    "no-money",
    "bad-key",
    "error",
    "not-found",
    "too-large",
    "token-limit",
    # files.content
    "cut",
    "cut-at-line",
    "short",
    # embeddings
    VectorDeed,
    # job: how it ends
    "fail",
    "expire",
    "cancel",
    "stay",
    "no-output-id",
    "empty-error-id",
    # job: its result rows
    "reject-rows",
    "fail-rows",
    "broke-rows",
    "miss-rows",
    "double-rows",
    "null-id-rows",
    "unknown-row",
    "nan-rows",
    "null-rows",
    "narrow-rows",
    "short-rows",
    "contradict-rows",
    "malformed-line",
    "blank-line",
    "in-order",
    "as-floats",
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route, or ``job``.
        do: what goes wrong.
        header: that carries a rate limit's wait.
    """

    at: Route
    do: Deed
    header: str = "retry-after"
