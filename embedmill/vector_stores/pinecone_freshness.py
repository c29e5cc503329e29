"""When what was written to Pinecone can be seen: positions in its log, and counts that stand still.

Pinecone confirms a write before reads see it. Each write has a position (LSN) in the log of its
namespace, and a query says up to which position it sees. A write that changes nothing (deleting an
id that nobody has) gets a position behind all earlier writes of anybody: seeing it is seeing them.
Statistics and listings follow at their own pace and say no position; they are believed when they
have stood still for a while.
"""

from __future__ import annotations

from collections.abc import Callable

from embedmill.errors import TransientError
from embedmill.vector_stores.pinecone_data import PineconeData

# No record has this id: those are UUIDs.
_NOBODY = "embedmill-barrier"
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Freshness:
    """Waits until reads of a namespace see writes."""

    def __init__(
        self,
        data: PineconeData,
        *,
        timeout_s: float,
        settles_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """Hold what is needed.

        Args:
            data: of the index.
            timeout_s: most that is waited.
            settles_s: how long a count must stand still.
            clock: seconds.
            sleep: for seconds.
        """
        self._data = data
        self._timeout = timeout_s
        self._settles = settles_s
        self._clock = clock
        self._sleep = sleep
        self._written: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        # Written to without being told a position.
        self._unsure: set[str] = set()

    def wrote(self, namespace: str, position: int | None) -> None:
        """Remember that this process has written."""
        if position is None:
            self._unsure.add(namespace)
        else:
            self._written[namespace] = max(position, self._written.get(namespace, position))

    def see_own(self, namespace: str) -> None:
        """Wait until queries see what this process has written.

        Raises:
            TransientError: they do not in time.
        """
        position = self._written.get(namespace)
        if position is not None and self._seen.get(namespace, -1) < position:
            self._reach(namespace, position)
        if namespace in self._unsure:
            self.still_count(namespace)
            self._unsure.discard(namespace)
            if position is not None:
                self._seen[namespace] = position

    def see_once(self, namespace: str) -> None:
        """Wait until queries see all writes before the first such call, and then only own ones.

        Raises:
            TransientError: they do not in time.
        """
        if namespace not in self._seen:
            self.see_all(namespace)
        self.see_own(namespace)

    def see_all(self, namespace: str) -> None:
        """Wait until queries see what anybody has written up to now.

        Raises:
            AbsentError: there is no such namespace.
            TransientError: they do not in time.
        """
        self.wrote(namespace, self._data.delete(namespace, [_NOBODY]))
        self.see_own(namespace)

    def still_count(self, namespace: str) -> int:
        """Number of records that the statistics have given for a while.

        Raises:
            TransientError: it does not stand still in time.
        """
        deadline = self._clock() + self._timeout
        count, since = self._data.counted(namespace), self._clock()
        while self._clock() - since < self._settles:
            self._pause(min(_LONGEST_PAUSE_S, self._settles / 4), namespace, deadline)
            newer = self._data.counted(namespace)
            if newer != count:
                count, since = newer, self._clock()
        return count

    def check_listed(self, namespace: str, listed: int, expected: int) -> None:
        """Compare a listing with the count before it.

        Raises:
            TransientError: they differ: the listing lags behind, or somebody writes.
        """
        if listed != expected:
            raise TransientError(
                f"the listing of {namespace!r} has {listed:,} ids, its count is {expected:,}",
                code="not-consistent",
            )

    def until(self, done: Callable[[], bool], namespace: str) -> None:
        """Wait until something is so.

        Raises:
            TransientError: it is not in time.
        """
        deadline = self._clock() + self._timeout
        pause = _FIRST_PAUSE_S
        while not done():
            self._pause(pause, namespace, deadline)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def forget(self, namespace: str) -> None:
        """It is gone; one of the same name has a log of its own."""
        for known in (self._written, self._seen):
            known.pop(namespace, None)
        self._unsure.discard(namespace)

    def _reach(self, namespace: str, position: int) -> None:
        def reached() -> bool:
            seen = self._data.indexed_position(namespace)
            if seen is None:
                # Said to be so in an empty namespace: only the count is left to go by.
                self._unsure.add(namespace)
                return True
            if seen >= position:
                self._seen[namespace] = seen
            return seen >= position

        self.until(reached, namespace)

    def _pause(self, seconds: float, namespace: str, deadline: float) -> None:
        if self._clock() >= deadline:
            raise TransientError(
                f"what was written to {namespace!r} cannot be seen in full after "
                f"{self._timeout:g} s",
                code="not-consistent",
                hint="run again, or set store.consistency_timeout_s higher",
            )
        self._sleep(seconds)
