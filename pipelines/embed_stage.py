"""Giving segments their vectors in workers. What is missing is the work."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from actors.embed_worker import Embedded
from embedmill.counts import ChunkCounts, RateUse
from embedmill.errors import WorkerDiedError
from embedmill.executor import Done
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan
from pipelines.dispatcher import Dispatcher
from pipelines.faults import FaultPolicy
from pipelines.retry_queue import RetryQueue

EMBED = "embed"
# A segment that was running at this many deaths is probed document by document.
_PROBE_AFTER = 2
# A document whose probe was running at this many deaths is to blame: one may be an accident.
_PROBE_DEATHS = 2
# New documents with which models are loaded beside the reading, since all workers will have work.
_WORTH_WARMING = 16


@dataclass(slots=True)
class _Probe:
    """A segment whose documents are tried one by one."""

    waiting: deque[int]
    deaths: Counter[int] = field(default_factory=Counter)
    poisoned: set[int] = field(default_factory=set)


class EmbedStage:
    """Gives segments their vectors. A shard has a home worker; an idle worker helps others.

    A segment that may have ended a worker has its next one for itself: should that die as well, no
    other segment is to blame.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        faults: FaultPolicy,
        workers: int,
        on_embedded: Callable[[SegmentKey], None],
        *,
        one_model: bool = False,
    ) -> None:
        """Prepare; nothing runs before the first :meth:`pump`.

        Args:
            dispatcher: submits calls.
            faults: decides on failures; its clock is this stage's.
            workers: that embed.
            on_embedded: told of every segment that has vectors.
            one_model: all workers ask the same provider: one proves for all of them, before the
                first segment, that its model is the one that it was. Workers with a model each
                prove it themselves.
        """
        self._dispatcher = dispatcher
        self._faults = faults
        self._workers = workers
        self._one_model = one_model
        self._proof: Literal["wanted", "asked", "given"] = "wanted" if one_model else "given"
        self._prove_at = 0.0
        self._on_embedded = on_embedded
        self._waiting: dict[int, deque[SegmentKey]] = defaultdict(deque)
        self._later = RetryQueue(faults.clock)
        self._running: dict[int, deque[SegmentKey]] = defaultdict(deque)
        self._deaths: Counter[SegmentKey] = Counter()
        # Workers that a segment, or its probe, has for itself.
        self._taken: set[int] = set()
        self._probes: dict[SegmentKey, _Probe] = {}
        # Document rows that ended workers; they stay found out when a segment is probed again.
        self._poisoned: dict[SegmentKey, set[int]] = defaultdict(set)
        self._loans: dict[SegmentKey, Sequence[Loan]] = {}
        self._stale: dict[SegmentKey, frozenset[int]] = {}
        # Segments without vectors yet, and who waits for them to lend theirs.
        self._unembedded: set[SegmentKey] = set()
        self._warmed = False
        self._borrowers: dict[SegmentKey, list[SegmentKey]] = defaultdict(list)
        self._lenders: Counter[SegmentKey] = Counter()
        self.counts = ChunkCounts()
        self.rate = RateUse()

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._unembedded

    @property
    def parked(self) -> bool:
        """Whether what is left goes on without us: never, workers are ours."""
        return False

    @property
    def jobs(self) -> int:
        """Embedding jobs that are waited for: none."""
        return 0

    @property
    def retrying(self) -> bool:
        """A segment waits for the time of its next try, or all of them for a proof."""
        return len(self._later) > 0 or (self._proof == "wanted" and self.waiting > 0)

    @property
    def waiting(self) -> int:
        """Segments that wait for a worker."""
        return sum(len(queue) for queue in self._waiting.values())

    def add(
        self, key: SegmentKey, loans: Sequence[Loan] = (), stale: frozenset[int] = frozenset()
    ) -> None:
        """Queue a segment without vectors; it waits for the segments that lend it theirs.

        Lenders were added before their borrowers, so that nobody waits in a circle.

        Args:
            key: the segment.
            loans: rows that may take the vector of an equal text elsewhere in this run.
            stale: document rows that are superseded by now and get no vectors.
        """
        self._unembedded.add(key)
        if stale:
            self._stale[key] = stale
        if loans:
            self._loans[key] = loans
        lenders = {loan.source for loan in loans} & self._unembedded - {key}
        if not lenders:
            self._queue(key)
            return
        self._lenders[key] = len(lenders)
        for lender in lenders:
            self._borrowers[lender].append(key)

    def _queue(self, key: SegmentKey) -> None:
        self._waiting[key.shard % self._workers].append(key)

    def _embedded(self, key: SegmentKey) -> None:
        self._unembedded.discard(key)
        self._loans.pop(key, None)
        self._stale.pop(key, None)
        for borrower in self._borrowers.pop(key, ()):
            self._lenders[borrower] -= 1
            if not self._lenders[borrower]:
                del self._lenders[borrower]
                self._queue(borrower)

    def expect(self, documents: int) -> None:
        """So many new documents were met; see :meth:`get_ready`."""
        if documents >= _WORTH_WARMING:
            self.get_ready()

    def get_ready(self) -> None:
        """Have all workers load their model, once: segments will come soon."""
        if not self._warmed:
            self._warmed = True
            self._dispatcher.start(EMBED)

    def pump(self) -> None:
        """Submit what there is room for."""
        for key in self._later.due():
            self._queue(key)
        if self._proof == "wanted" and self.waiting and self._faults.clock() >= self._prove_at:
            self._proof = "asked"
            self._dispatcher.call((EMBED, 0), "prove", then=self._on_proved)
        if self._proof != "given":
            return
        # One for each in turn: what there is to do is spread.
        while sum(self._pump(worker) for worker in range(self._workers)):
            pass

    def _pump(self, worker: int) -> bool:
        """Submit one segment if there is one that this worker may have now."""
        if worker in self._taken or not self._dispatcher.has_room(EMBED, worker):
            return False
        following = self._next(worker)
        if following is not None:
            self._submit(worker, following)
        return following is not None

    def _on_proved(self, done: Done) -> None:
        self._proof = "wanted"
        if done.error is None:
            self._proof = "given"
        elif not isinstance(done.error, WorkerDiedError):
            self._prove_at = self._faults.wait_before_retry(("asking", "the model"), done)

    def _next(self, worker: int) -> SegmentKey | None:
        queue, running = self._waiting[worker], len(self._running[worker])
        # Stealing is for the idle: a worker with work in hand leaves the rest to its owner.
        if not queue and running < self._dispatcher.at_a_time(EMBED):
            queue = max(self._waiting.values(), key=len)
        if not queue or (self._deaths[queue[0]] and running):
            return None
        return queue.popleft()

    def _submit(self, worker: int, key: SegmentKey) -> None:
        self._running[worker].append(key)
        if self._deaths[key]:
            self._taken.add(worker)
        self._dispatcher.call(
            (EMBED, worker),
            "embed",
            key,
            frozenset(self._poisoned.get(key, ())),
            self._loans.get(key, ()),
            self._stale.get(key, frozenset()),
            self._one_model,
            then=partial(self._on_done, worker, key),
        )

    def _on_done(self, worker: int, key: SegmentKey, done: Done) -> None:
        self._running[worker].remove(key)
        self._taken.discard(worker)
        if isinstance(done.error, WorkerDiedError):
            self._deaths[key] += int(done.error.running)
            self._retry_after_death(worker, key)
        elif done.error is not None:
            self._later.add(self._faults.wait_before_retry(("embedding", key), done), key)
        else:
            self._faults.committed()
            embedded: Embedded = done.value
            self.counts += embedded.counts
            self.rate += embedded.rate
            self._embedded(key)
            self._on_embedded(key)

    def _retry_after_death(self, worker: int, key: SegmentKey) -> None:
        if self._deaths[key] < _PROBE_AFTER:
            self._queue(key)
            return
        self._taken.add(worker)
        self._probes[key] = _Probe(deque(), poisoned=self._poisoned[key])
        self._dispatcher.call(
            (EMBED, worker),
            "document_rows",
            key,
            then=partial(self._on_rows, worker, key),
        )

    def _on_rows(self, worker: int, key: SegmentKey, done: Done) -> None:
        if isinstance(done.error, WorkerDiedError):
            self._retry_after_death(worker, key)
            return
        if done.error is not None:
            del self._probes[key]
            self._taken.discard(worker)
            self._later.add(self._faults.wait_before_retry(("probing", key), done), key)
            return
        probe = self._probes[key]
        probe.waiting.extend(row for row in done.value if row not in probe.poisoned)
        self._probe_next(worker, key)

    def _probe_next(self, worker: int, key: SegmentKey) -> None:
        probe = self._probes[key]
        if not probe.waiting:
            del self._probes[key]
            self._submit(worker, key)
            return
        row = probe.waiting.popleft()
        self._dispatcher.call(
            (EMBED, worker),
            "probe",
            key,
            row,
            then=partial(self._on_probed, worker, key, row),
        )

    def _on_probed(self, worker: int, key: SegmentKey, row: int, done: Done) -> None:
        if isinstance(done.error, WorkerDiedError):
            probe = self._probes[key]
            probe.deaths[row] += int(done.error.running)
            if probe.deaths[row] >= _PROBE_DEATHS:
                probe.poisoned.add(row)
                self._faults.committed()
            else:
                probe.waiting.appendleft(row)
        # Any other failure of a probe shows again, and is handled, when the segment is embedded.
        self._probe_next(worker, key)
