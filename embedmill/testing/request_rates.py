"""A fake provider's rate limits: it counts what arrives, and refuses what is too much."""

from __future__ import annotations

import threading
import time
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
    """

    requests: int | None = None
    tokens: int | None = None
    window_s: float = 60.0


class RateCounter:
    """Remembers what arrived and when.

    Attributes:
        arrivals: that were let in, in their order; microseconds of this process's clock.
        refused: how many were not.
    """

    def __init__(self, limits: RateLimits) -> None:
        self.arrivals: list[Arrival] = []
        self.refused = 0
        self._limits = limits
        self._window = round(limits.window_s * SECOND)
        self._lock = threading.Lock()

    def arrived(self, tokens: int) -> float:
        """Count a request; seconds until there is room for it: 0 when it is let in."""
        with self._lock:
            now = round(time.monotonic() * SECOND)
            wait = self._wait(tokens, now)
            if wait:
                self.refused += 1
            else:
                self.arrivals.append(Arrival(now, tokens, ""))
            return wait / SECOND

    def _wait(self, tokens: int, now: int) -> int:
        recent = []
        for arrival in reversed(self.arrivals):
            if arrival.time <= now - self._window:
                break
            recent.append(arrival)
        count, total = len(recent) + 1, sum(arrival.tokens for arrival in recent) + tokens
        wait = 0
        while recent and self._exceeds(count, total):
            oldest = recent.pop()
            count, total = count - 1, total - oldest.tokens
            wait = oldest.time + self._window - now + 1
        return wait

    def _exceeds(self, count: int, total: int) -> bool:
        requests, tokens = self._limits.requests, self._limits.tokens
        return (requests is not None and count > requests) or (
            tokens is not None and total > tokens
        )
