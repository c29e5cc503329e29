"""What the fake providers' states have in common: options, the bill, what arrives and how fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from embedmill.openai_tokens import estimated_tokens
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fault_plan import FaultPlan, FaultT
from embedmill.testing.request_rates import RateCounter, RateLimits


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """How a fake provider behaves when nothing goes wrong.

    Attributes:
        refused_words: a text with one of them is refused, as a text is that the model cannot take.
        count_tokens: of one text.
        api_key: the only one that is right; empty: any.
        polls_per_status: questions about a job before it moves on.
        rates: of direct requests; more than that is refused.
        now: seconds since the epoch.
        clock: of the rates; seconds.
    """

    refused_words: tuple[str, ...] = ()
    count_tokens: Callable[[str], int] = estimated_tokens
    api_key: str = ""
    polls_per_status: int = 1
    rates: RateLimits = field(default_factory=RateLimits)
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic


OptionsT = TypeVar("OptionsT", bound=ProviderOptions)


@dataclass(slots=True)
class ProviderAccount(Generic[OptionsT, FaultT]):
    """All that one fake provider holds beside files and jobs.

    Attributes:
        options: how the server behaves.
        plan: what goes wrong.
        bill: what was charged for.
        rates: what arrived of direct requests.
        lock: held by whoever changes something.
    """

    options: OptionsT
    plan: FaultPlan[FaultT]
    bill: Bill = field(default_factory=Bill)
    rates: RateCounter = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.rates = RateCounter(self.options.rates, self.options.clock)

    def refuses(self, key: str) -> bool:
        """Whether a key is not right, or none."""
        right = self.options.api_key
        return not key or bool(right and key != right)
