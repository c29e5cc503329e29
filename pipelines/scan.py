"""The scan: read the source in its order and have every row drafted by the worker that owns it.

Blocks go to a shard worker in the order of the source. When a shard worker dies, what it has seen
is lost, so its shards are scanned again from the start; what it had committed counts as it was
counted.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from actors.read_worker import BlockRead
from actors.shard_worker import Drafted
from embedmill.counts import DocumentCounts
from embedmill.draft_outcome import Committed
from embedmill.errors import TransientError, WorkerDiedError
from embedmill.executor import Done
from embedmill.sharding import ShardPlan
from embedmill.source import Split
from pipelines.dispatcher import Dispatcher
from pipelines.faults import FaultPolicy
from pipelines.recognition import Recognition

log = logging.getLogger(__name__)
READ, SHARD = "read", "shard"
# Blocks read ahead of the one being drafted, per reader.
_READ_AHEAD = 2
# A row that ran alone at this many deaths is to blame: one may be an accident.
_ROW_DEATHS = 2

BlockName = tuple[int, int]


@dataclass(slots=True)
class ScanSize:
    """How much a scan has met so far.

    Attributes:
        read_bytes: of the source.
        chunks: of added and changed documents.
    """

    read_bytes: int = 0
    chunks: int = 0


@dataclass(slots=True)
class _Block:
    name: BlockName
    rows: tuple[int, ...]
    parts: tuple[Any, ...]


@dataclass(slots=True)
class _OpenSplit:
    split: Split
    reader: int
    next_block: int = 0
    reading: bool = False
    # When a block that could not be read is asked for again; 0: nothing waits for its time.
    not_before: float = 0.0
    done: bool = False
    blocks: deque[_Block] = field(default_factory=deque)


@dataclass(slots=True)
class _Draft:
    """One call of a shard worker."""

    block: _Block
    only: tuple[int, int] | None


class Scan:
    """One complete reading of the source, repeated for the shards of workers that died.

    Attributes:
        size: how much it has met so far; what was met again counts again.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        faults: FaultPolicy,
        splits: Sequence[Split],
        *,
        on_committed: Callable[[Committed], None],
        on_lost: Callable[[int], None],
        only: frozenset[str] | None = None,
        plan: ShardPlan | None = None,
    ) -> None:
        """Prepare; nothing runs before the first :meth:`pump`.

        Args:
            dispatcher: submits calls.
            faults: decides on failures.
            splits: of the source, in order.
            on_committed: told of every new segment, those of a shard in order.
            on_lost: told of a shard worker that died, before its shards are scanned again; it may
                have committed segments that it could not report.
            only: ids and uris of the rows to take; all without it.
            plan: of the shards, if files that are listed as they were when they were read last are
                to be left unread; without it everything is read.
        """
        self._dispatcher = dispatcher
        self._faults = faults
        self._readers = dispatcher.size(READ)
        self._workers = dispatcher.size(SHARD)
        self._on_committed = on_committed
        self._on_lost = on_lost
        self._only = only
        self._counts = [DocumentCounts() for _ in range(self._workers)]
        self._active = set(range(self._workers))
        self._again: set[int] = set()
        self._blame: Counter[tuple[int, BlockName, int]] = Counter()
        self._suspects: set[tuple[int, BlockName]] = set()
        self.size = ScanSize()
        self._splits = list(splits)
        self._recognition: Recognition | None = None
        if plan is not None:
            self._recognition = Recognition(
                dispatcher,
                SHARD,
                plan,
                splits,
                on_recognised=self._count,
                on_lost=lambda worker, error: self._lose(worker, None, error),
            )
        self._start_pass()

    @property
    def counts(self) -> DocumentCounts:
        """Of all rows drafted so far."""
        return sum(self._counts, DocumentCounts())

    @property
    def finished(self) -> bool:
        """Every row of the source has been drafted and committed."""
        return self._finished

    @property
    def retrying(self) -> bool:
        """A reader waits for the time of its next try."""
        return any(split.not_before > 0.0 for split in self._open)

    def pump(self) -> None:
        """Submit what there is room for."""
        if self._finished or not self._recognised():
            return
        self._open_splits()
        self._deliver()
        # Last, since blocks without a row for anybody make room at once.
        self._read_ahead()
        self._finish_pass()

    def _start_pass(self) -> None:
        if self._recognition is not None:
            self._recognition.start(self._active)
        self._waiting = deque(() if self._recognition else self._splits)
        self._open: deque[_OpenSplit] = deque()
        self._queues: dict[int, deque[_Draft]] = {w: deque() for w in self._active}
        self._running: dict[int, deque[_Draft]] = {w: deque() for w in self._active}
        self._to_finish = set(self._active)
        self._finishing: set[int] = set()
        self._finished = False

    def _recognised(self) -> bool:
        """Whether all is known that need not be read; the rest is waiting from then on."""
        if self._recognition is None or self._recognition.finished:
            return True
        if not self._recognition.pump():
            return False
        if self._again != self._active:
            self._waiting.extend(self._recognition.splits)
        return True

    def _count(self, worker: int, counts: DocumentCounts) -> None:
        self._counts[worker] += counts

    def _open_splits(self) -> None:
        busy = {split.reader for split in self._open}
        for reader in range(self._readers):
            if reader not in busy and self._waiting:
                self._open.append(_OpenSplit(self._waiting.popleft(), reader))

    def _read_ahead(self) -> None:
        for split in self._open:
            if split.reading or split.done or len(split.blocks) >= _READ_AHEAD:
                continue
            if self._faults.clock() >= split.not_before:
                split.reading, split.not_before = True, 0.0
                self._dispatcher.call(
                    (READ, split.reader),
                    "read_block",
                    split.split,
                    split.next_block,
                    self._only,
                    then=partial(self._on_read, split),
                    parts=self._workers,
                )

    def _on_read(self, split: _OpenSplit, done: Done) -> None:
        split.reading = False
        block = f"block {split.next_block} of {_name_of(split.split)}"
        if isinstance(done.error, WorkerDiedError):
            if done.error.running:
                log.warning("the worker that died was reading %s", block)
            return
        if done.error is not None:
            what = ("reading", block)
            split.not_before = self._faults.wait_before_retry(what, done)
            return
        read: BlockRead = done.value
        if read.done:
            split.done = True
            return
        self.size.read_bytes += read.size
        name = (split.split.number, split.next_block)
        split.next_block += 1
        split.blocks.append(_Block(name, read.rows, done.parts))

    def _deliver(self) -> None:
        """Queue blocks at the shard workers, in the source's order, while all have room."""
        self._submit()
        while self._open:
            head = self._open[0]
            while head.blocks and not any(self._queues.values()):
                self._queue(head.blocks.popleft())
                self._submit()
            if head.blocks or not head.done:
                return
            self._open.popleft()
            self._open_splits()

    def _queue(self, block: _Block) -> None:
        for worker in self._active - self._again:
            rows = block.rows[worker]
            if not rows:
                continue
            if (worker, block.name) in self._suspects:
                self._queues[worker].extend(_Draft(block, (row, row + 1)) for row in range(rows))
            else:
                self._queues[worker].append(_Draft(block, None))

    def _submit(self) -> None:
        for worker, queue in self._queues.items():
            while queue and self._has_room(worker, queue[0]):
                draft = queue.popleft()
                self._running[worker].append(draft)
                self._dispatcher.call(
                    (SHARD, worker),
                    "draft",
                    draft.block.parts[worker],
                    draft.only,
                    self._poisoned(worker, draft),
                    then=partial(self._on_drafted, worker),
                )

    def _has_room(self, worker: int, draft: _Draft) -> bool:
        running = self._running[worker]
        if any(one.only is not None for one in (draft, *running)):
            # Rows under suspicion go one at a time: the answer of a row may be lost with the
            # worker that the next row ends, and the wrong one would be blamed.
            return not running
        return self._dispatcher.has_room(SHARD, worker)

    def _poisoned(self, worker: int, draft: _Draft) -> Mapping[int, str]:
        if draft.only is None:
            return {}
        row = draft.only[0]
        deaths = self._blame[worker, draft.block.name, row]
        return {row: f"drafting it ended {deaths + 1} workers"} if deaths >= _ROW_DEATHS else {}

    def _on_drafted(self, worker: int, done: Done) -> None:
        draft = self._running[worker].popleft()
        if isinstance(done.error, TransientError):
            self._lose(worker, draft, done.error)
        elif done.error is not None:
            raise done.error
        elif worker not in self._again:
            self._account(worker, done.value)

    def _account(self, worker: int, drafted: Drafted) -> None:
        self._counts[worker] += drafted.counts
        self.size.chunks += drafted.chunks
        for committed in drafted.committed:
            self._faults.committed()
            self._on_committed(committed)

    def _lose(self, worker: int, draft: _Draft | None, error: TransientError) -> None:
        """The worker is dead, or its state is not to be trusted: scan its shards again."""
        if isinstance(error, WorkerDiedError):
            if draft is not None and error.running:
                self._accuse(worker, draft)
        elif worker not in self._again:
            self._dispatcher.discard((SHARD, worker), error)
        self._again.add(worker)
        self._queues[worker].clear()
        if self._again == self._active:
            # Nobody is left to take a row: the rest would be read for nothing.
            self._waiting.clear()
            self._open.clear()

    def _accuse(self, worker: int, draft: _Draft) -> None:
        self._suspects.add((worker, draft.block.name))
        if draft.only is not None:
            blame = (worker, draft.block.name, draft.only[0])
            if not self._blame[blame]:
                # A document found out is a step forward: many of them are no crash loop.
                self._faults.committed()
            self._blame[blame] += 1

    def _finish_pass(self) -> None:
        """At the end of the source, have what is pending committed; then scan again if needed."""
        drained = not (self._waiting or self._open or any(self._queues.values()))
        if not drained or any(self._running.values()):
            return
        for worker in self._to_finish - self._again:
            self._finishing.add(worker)
            self._dispatcher.call(
                (SHARD, worker),
                "finish",
                then=partial(self._on_finished, worker),
            )
        self._to_finish.clear()
        if not self._finishing:
            self._end_pass()

    def _on_finished(self, worker: int, done: Done) -> None:
        self._finishing.discard(worker)
        if isinstance(done.error, TransientError):
            self._lose(worker, None, done.error)
        elif done.error is not None:
            raise done.error
        else:
            self._account(worker, done.value)

    def _end_pass(self) -> None:
        if not self._again:
            self._finished = True
            return
        log.warning("scanning the source again for %d shard workers that died", len(self._again))
        self._active = set(self._again)
        for worker in self._again:
            self._counts[worker] = DocumentCounts()
            self._on_lost(worker)
        self._again = set()
        self._start_pass()
        self.pump()


def _name_of(split: Split) -> str:
    more = len(split.paths) - 1
    return split.paths[0] + (f" and {more} more files" if more else "")
