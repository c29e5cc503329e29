"""Segments that wait for the time of their next try."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from embedmill.segment import SegmentKey


@dataclass(slots=True)
class RetryQueue:
    """Keys that wait for their time.

    Attributes:
        clock: monotonic seconds.
    """

    clock: Callable[[], float]
    _heap: list[tuple[float, SegmentKey]] = field(default_factory=list)

    def add(self, when: float, key: SegmentKey) -> None:
        """Let a key wait."""
        heapq.heappush(self._heap, (when, key))

    def due(self) -> list[SegmentKey]:
        """Take the keys whose time has come."""
        keys = []
        while self._heap and self._heap[0][0] <= self.clock():
            keys.append(heapq.heappop(self._heap)[1])
        return keys

    def __len__(self) -> int:
        """How many wait."""
        return len(self._heap)
