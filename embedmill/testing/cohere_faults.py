"""What can go wrong at the fake Cohere server, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault

Route = Literal["embed"]
Deed = Literal[
    CommonDeed,
    # Any route, instead of the work.
    "rate-limit",
    "bad-key",
    "no-money",
    "error",
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
        at: route.
        do: what goes wrong.
        value: a ``Retry-After``, or the status of ``error`` or ``bad-key`` (401, 403, 498).
    """

    at: Route
    do: Deed
