"""Keeping under a rate of requests and tokens by spacing calls out."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """Each call takes its share of a minute; the next one starts when that is over.

    Never bursts, so that no minute, wherever it begins, holds more than was allowed. Of one process
    and one thread.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait(self, tokens: int) -> None:
        """Wait until a call with so many tokens may start."""
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        shares = (
            60 / self._requests if self._requests else 0.0,
            60 * tokens / self._tokens if self._tokens else 0.0,
        )
        self._free_at = max(now, self._free_at) + max(shares)
