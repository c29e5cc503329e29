"""Applying segments that have vectors: the store, what is missing there is the work."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile

from embedmill.applying import AppliedSegments
from embedmill.counts import RecordCounts, WriteCounts
from embedmill.errors import StopRunError, WorkerDiedError
from embedmill.executor import Done
from embedmill.segment import SegmentKey
from pipelines.dispatcher import Dispatcher
from pipelines.faults import FaultPolicy
from pipelines.retry_queue import RetryQueue

WRITE = "write"
# Deaths of writers over one segment that end the run: no document is to blame for a writer.
_MAX_WRITER_DEATHS = 3
# Segments of one call, which a store may confirm together: one at a time, writing to the embedded
# store takes 4 % longer, and a call over Ray costs each of them as much again.
_TOGETHER = 8


class ApplyStage:
    """Applies segments that have vectors; of one shard one at a time and in order.

    Attributes:
        held: nothing is applied for now: the store is left to others.
    """

    def __init__(self, dispatcher: Dispatcher, faults: FaultPolicy, writers: int) -> None:
        self._dispatcher = dispatcher
        self._faults = faults
        self._writers = writers
        self._order: dict[int, deque[SegmentKey]] = defaultdict(deque)
        self._ready: set[SegmentKey] = set()
        self._busy: set[int] = set()
        self._last: dict[int, int] = {}
        self._later = RetryQueue(faults.clock)
        self._deaths: Counter[SegmentKey] = Counter()
        self.held = False
        self.counts = RecordCounts()
        self.writes = WriteCounts()
        self.applied = 0

    @property
    def idle(self) -> bool:
        """Nothing runs, and nothing waits that may be applied."""
        return self.held or not (self._busy or self._later or any(self._order.values()))

    @property
    def starved(self) -> bool:
        """Nothing runs, and whatever waits, waits for vectors."""
        heads = (order[0] for order in self._order.values() if order)
        ready = any(head in self._ready for head in heads)
        return self.held or not (self._busy or self._later or ready)

    @property
    def retrying(self) -> bool:
        """A segment waits for the time of its next try."""
        return len(self._later) > 0

    @property
    def waiting(self) -> int:
        """Segments that are not applied yet."""
        return sum(len(queue) for queue in self._order.values())

    @property
    def last_applied(self) -> dict[int, int]:
        """Number of the last applied segment, by shard."""
        return dict(self._last)

    def start_after(self, shard: int, number: int) -> None:
        """The segments of this shard up to ``number`` are applied."""
        self._last[shard] = number

    def announce(self, key: SegmentKey) -> None:
        """A segment exists; segments of a shard are announced in order."""
        self._order[key.shard].append(key)

    def ready(self, key: SegmentKey) -> None:
        """A segment has vectors."""
        self._ready.add(key)

    def pump(self) -> None:
        """Submit what there is room for."""
        if self.held:
            return
        for key in self._later.due():
            self._busy.discard(key.shard)
        for shard, order in self._order.items():
            if not order or shard in self._busy or order[0] not in self._ready:
                continue
            writer = shard % self._writers
            if self._dispatcher.has_room(WRITE, writer):
                self._submit(writer, shard)

    def _submit(self, writer: int, shard: int) -> None:
        ready = takewhile(self._ready.__contains__, self._order[shard])
        head = self._order[shard][0]
        # Where a writer died, the next one shows over which segment.
        keys = list(islice(ready, 1 if self._deaths[head] else _TOGETHER))
        self._busy.add(shard)
        self._dispatcher.call(
            (WRITE, writer),
            "apply",
            keys,
            self._last.get(shard),
            then=partial(self._on_done, shard),
        )

    def _on_done(self, shard: int, done: Done) -> None:
        self._busy.discard(shard)
        if isinstance(done.error, WorkerDiedError):
            self._on_death(self._order[shard][0], done.error)
            return
        failure = done.error
        if failure is None:
            applied, writes = done.value
            self.writes += writes
            self._take(shard, applied)
            failure = applied.failure
        if failure is not None:
            head = self._order[shard][0]
            again = self._faults.wait_before_retry(("applying", head), replace(done, error=failure))
            self._busy.add(shard)
            self._later.add(again, head)

    def _take(self, shard: int, applied: AppliedSegments) -> None:
        self._faults.committed()
        for counts in applied.counts:
            key = self._order[shard].popleft()
            self._ready.discard(key)
            self._last[shard] = key.number
            self.counts += counts
            self.applied += 1

    def _on_death(self, key: SegmentKey, error: WorkerDiedError) -> None:
        self._deaths[key] += int(error.running)
        if self._deaths[key] >= _MAX_WRITER_DEATHS:
            raise StopRunError(
                f"applying segment {key} ended {self._deaths[key]} writers; the last: {error}",
                code="writer-died",
                hint="look at the store and the workers' logs; all that was committed is kept",
            )
