"""Memory that replies are read into, used again for the next ones.

A reply with 256 vectors of 1,536 components has two megabytes. Memory for so much is fresh from the
system time and again, and having it mapped in, page by page, costs as much processor time as
decoding what is in it (``scripts/bench realtime``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

# Larger replies are read into memory of their own.
_MOST_KEPT = 1 << 24
_FIRST = 1 << 16


class ReplyMemory:
    """Lends memory to replies. For any number of threads."""

    def __init__(self, most: int) -> None:
        """Keep memory of so many replies at most, while none is read."""
        self._most = most
        self._free: list[bytearray] = []
        self._lock = threading.Lock()

    def lend(self) -> bytearray:
        """Some that is free, or a little that is new."""
        with self._lock:
            return self._free.pop() if self._free else bytearray(_FIRST)

    def give_back(self, memory: bytearray) -> None:
        """Nobody looks at it any more."""
        with self._lock:
            if len(self._free) < self._most and len(memory) <= _MOST_KEPT:
                self._free.append(memory)


def filled(memory: bytearray, parts: Iterable[bytes], expected: int = 0) -> tuple[bytearray, int]:
    """Write parts one behind the other.

    Args:
        memory: to write to.
        parts: of a reply.
        expected: bytes of all of them, where they are known.

    Returns:
        The memory, or other that is larger, and how much of it is filled.
    """
    if expected > len(memory):
        memory = bytearray(expected)
    size = 0
    for part in parts:
        end = size + len(part)
        if end > len(memory):
            larger = bytearray(max(end, 2 * len(memory)))
            larger[:size] = memoryview(memory)[:size]
            memory = larger
        memory[size:end] = part
        size = end
    return memory, size
