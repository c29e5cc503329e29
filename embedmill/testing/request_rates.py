"""A fake provider's rate limits: it counts what arrives, and refuses what is too much."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from embedmill.rate_budget import SECOND
from embedmill.testing.provider_traffic import Arrival


@dataclass(frozen=True, slots=True)
class RateLimits:
    """In any window, wherever it begins; None: no limit.

    Attributes:
        requests: that may arrive.
        tokens: of them.
        window_s: seconds.
        inputs: texts of them.
    """

    requests: int | None = None
    tokens: int | None = None
    window_s: float = 60.0
    inputs: int | None = None


def add_rate_options(parser: argparse.ArgumentParser) -> None:
    """Let a fake server's command line limit the rate of direct requests."""
    for what, of in (("requests", ""), ("tokens", " of these"), ("inputs", ": texts of these")):
        parser.add_argument(f"--{what}-per-minute", type=int, help=f"direct requests{of}, else 429")


def rates_given(given: argparse.Namespace) -> RateLimits:
    """The limits of the command line.

    Raises:
        ValueError: one of them lets nothing through.
    """
    requests, tokens, inputs = (
        given.requests_per_minute,
        given.tokens_per_minute,
        given.inputs_per_minute,
    )
    if any(limit is not None and limit < 1 for limit in (requests, tokens, inputs)):
        raise ValueError("a limit by the minute is 1 at least")
    return RateLimits(requests, tokens, inputs=inputs)


def rate_headers(counter: RateCounter) -> dict[str, str]:
    """What OpenAI says of its limits with every reply; nothing of a limit that there is not."""
    headers: dict[str, str] = {}
    used, limits = counter.used(), counter.limits
    for name, limit, count in zip(
        ("requests", "tokens"), (limits.requests, limits.tokens), used, strict=True
    ):
        if limit is not None:
            headers |= {
                f"x-ratelimit-limit-{name}": str(limit),
                f"x-ratelimit-remaining-{name}": str(limit - count),
                # Until all of the limit is there again.
                f"x-ratelimit-reset-{name}": f"{count * limits.window_s / limit * 1000:.0f}ms",
            }
    return headers


class RateCounter:
    """Remembers what arrived and when.

    Attributes:
        arrivals: that were let in, in their order; microseconds of the clock.
        refused: how many were not.
    """

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.arrivals: list[Arrival] = []
        self.refused = 0
        self.limits = limits
        self._clock = clock
        self._window = round(limits.window_s * SECOND)
        self._lock = threading.Lock()

    def arrived(self, tokens: int, inputs: int = 1) -> float:
        """Count a request; seconds until there is room for it: 0 when it is let in.

        There is never room for one that exceeds a limit alone.
        """
        with self._lock:
            now = self._now()
            arrival = Arrival(now, tokens, "", inputs)
            wait = self._wait(arrival)
            if wait:
                self.refused += 1
            else:
                self.arrivals.append(arrival)
            return wait / SECOND

    def used(self) -> tuple[int, int]:
        """Requests and tokens of the window that ends now."""
        with self._lock:
            recent = self._recent(self._now())
            return len(recent), sum(arrival.tokens for arrival in recent)

    def _now(self) -> int:
        return round(self._clock() * SECOND)

    def _recent(self, now: int) -> list[Arrival]:
        """Newest first."""
        recent = []
        for arrival in reversed(self.arrivals):
            if arrival.time <= now - self._window:
                break
            recent.append(arrival)
        return recent

    def _wait(self, new: Arrival) -> int:
        recent = self._recent(new.time)
        if self._exceeds([new]):
            return self._window
        wait = 0
        while self._exceeds([new, *recent]):
            wait = recent.pop().time + self._window - new.time + 1
        return wait

    def _exceeds(self, arrivals: list[Arrival]) -> bool:
        sums = (
            (self.limits.requests, len(arrivals)),
            (self.limits.tokens, sum(arrival.tokens for arrival in arrivals)),
            (self.limits.inputs, sum(arrival.inputs for arrival in arrivals)),
        )
        return any(limit is not None and total > limit for limit, total in sums)
