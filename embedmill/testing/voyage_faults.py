"""What can go wrong at the fake Voyage server, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault, VectorDeed

Route = Literal["embeddings"]
Deed = Literal[
    CommonDeed,
    # Any route, instead of the work.
    "rate-limit",
    "rate-limit-page",
    "bad-key",
    "no-money",
    "error",
    VectorDeed,
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route.
        do: what goes wrong; ``rate-limit-page`` comes from a proxy, without JSON.
        value: a ``Retry-After``, or the status of an ``error``.
    """

    at: Route
    do: Deed
