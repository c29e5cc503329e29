"""One limit of so much in a window of time: when may the next request of a given size start?"""

from __future__ import annotations

# Of a window; what was taken counts to the end of its part: 0.2 % of the limit at most is not used.
_PARTS = 500
# Of a window: starts that came late are made up for by so much.
_CATCH_UP = 50


class Meter:
    """Admits at most ``limit`` in any window, and no burst: requests start evenly spaced.

    Times are whole microseconds, amounts whole numbers. What is taken is noted with the latest
    time at which it can arrive (:meth:`take`), and counts for a whole window after that. Starts
    never go back. Whatever has arrived in a window that a request arrives in was therefore counted
    when it was admitted, or was admitted after it and counted it: the sum is within the limit.
    """

    def __init__(self, limit: int | None, window: int, now: int) -> None:
        self._limit = limit
        self._window = window
        self._part = max(1, window // _PARTS)
        self._catch_up = window // _CATCH_UP
        self._free = now
        self._total = 0
        self._parts: dict[int, int] = {}
        self._forgotten = 0

    def keep_to(self, limit: int | None) -> None:
        """Change the limit from now on; what was taken stays noted."""
        self._limit = limit

    def charged(self, amount: int) -> int:
        """What is taken for an amount: one over the limit goes alone in a window."""
        return amount if self._limit is None else min(amount, self._limit)

    def share(self, amount: int) -> int:
        """The time in which so much may be taken, at the rate of the limit."""
        return 0 if self._limit is None else -(-amount * self._window // self._limit)

    def start(self, at: int, amount: int) -> int:
        """The earliest time, not before ``at``, at which so much may start."""
        if self._limit is None:
            return at
        start, total = max(at, self._free), self._total
        if total + amount <= self._limit:
            return start
        for part in sorted(self._parts):
            counts_until = (part + 1) * self._part + self._window
            if counts_until > start:
                if total + amount <= self._limit:
                    return start
                start = counts_until
            total -= self._parts[part]
        return start

    def take(self, start: int, arrival: int, amount: int, share: int) -> int:
        """Note what was admitted.

        Args:
            start: when it starts.
            arrival: when it arrives at the latest.
            amount: that is taken.
            share: the time that it takes up; nothing else starts before that is over.

        Returns:
            Where it is noted, for :meth:`change`.
        """
        self._free = max(self._free, start - self._catch_up) + share
        return self._add(arrival // self._part, amount)

    def change(self, part: int, amount: int, arrived: int, actual: int) -> int:
        """Note that something taken has arrived, and how much it was.

        Args:
            part: where it is noted.
            amount: that was taken.
            arrived: not after this time.
            actual: amount.
        """
        self._free += self.share(actual) - self.share(amount)
        if part in self._parts:
            self._add(part, -amount)
            return self._add(min(part, arrived // self._part), actual)
        return part

    def forget(self, now: int) -> None:
        """Drop what counts no more; it keeps the meter small, and decides nothing."""
        last = (now - self._window) // self._part - 1
        if last > self._forgotten:
            self._forgotten = last
            for part in [part for part in self._parts if part <= last]:
                self._total -= self._parts.pop(part)

    def _add(self, part: int, amount: int) -> int:
        self._total += amount
        self._parts[part] = self._parts.get(part, 0) + amount
        return part
