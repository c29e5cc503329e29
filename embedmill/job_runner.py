"""Runs embedding jobs for the segments it is offered: pack, submit, poll, collect, finish the rest.

The runner holds a few bytes for each row that waits. What it knows of jobs stands in the workspace
before and after every step that costs money, so that any process can take over at any point: a new
runner reads the records and goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from embedmill.batch_provider import JobState
from embedmill.embedder import Vectors
from embedmill.embedding import EmbedOutcome, outcome_of
from embedmill.embedding_job import buckets_of, verdict_on_row
from embedmill.errors import StopRunError
from embedmill.job_collecting import Collected, FailedRow
from embedmill.job_desk import Ending, JobDesk, JobParts
from embedmill.job_packing import Packed
from embedmill.job_records import Intent, JobOutcome, job_key
from embedmill.job_rows import FLYING, KEPT, OPEN, SETTLED, RowHistory, SegmentRows
from embedmill.segment import SegmentKey
from embedmill.segment_work import SegmentWork
from embedmill.text_index import Loan

log = logging.getLogger(__name__)
# When a provider states no limit.
_FULL_FILE = 50_000


@dataclass(frozen=True, slots=True)
class Advance:
    """What one call of :meth:`JobRunner.advance` did.

    Attributes:
        done: segments that have vectors now.
        jobs: that are not collected.
        rows: that wait for a job or are in one.
        wait_s: nothing needs doing earlier than that.
    """

    done: tuple[tuple[SegmentKey, EmbedOutcome], ...]
    jobs: int
    rows: int
    wait_s: float


class JobRunner:
    """One poller for one account. Not for two at once on one index version."""

    def __init__(self, parts: JobParts) -> None:
        """Take up what earlier runners left."""
        self._p = parts
        self._desk = JobDesk(parts)
        self._segments: dict[SegmentKey, SegmentRows] = {}
        self._done: list[tuple[SegmentKey, EmbedOutcome]] = []
        self._known: set[str] = set()
        self._history = RowHistory(kept=parts.records.kept_rows())
        self._queue_full_until: datetime | None = None
        for record in parts.records.all():
            self._known.add(record.intent.key)
            if record.outcome is None:
                self._desk.take_up(record)
                self._history.fly(record.intent.rows())
            else:
                self._remember(record.outcome)

    def offer(self, key: SegmentKey, loans: Sequence[Loan] = ()) -> None:
        """A segment needs vectors."""
        table, digest = self._p.chunks.chunks(key)
        if self._p.vectors.exists(key):
            outcome = outcome_of(table, self._p.vectors.read(key, digest), tokens=0)
            self._done.append((key, outcome))
            return
        rows = SegmentRows.of(key, loans, table.column("token_count").to_numpy())
        self._segments[key] = rows
        self._open(rows)

    def advance(self, *, flush: bool) -> Advance:
        """Do what is due now, without waiting for anything.

        Args:
            flush: no more segments will come soon: send files that are not full.

        Raises:
            StopRunError: credentials, money, or a job that could not be used; records are whole.
        """
        late = self._p.deadline is not None and self._p.clock() >= self._p.deadline
        if late and self._p.realtime is not None:
            self._desk.cancel_all()
        self._step_all()
        self._settle()
        while self._send(flush=flush, late=late):
            self._settle()
        done, self._done = tuple(self._done), []
        rows = sum(segment.unsettled for segment in self._segments.values())
        return Advance(done, len(self._desk), rows, self._wait_s())

    def _wait_s(self) -> float:
        due = [time for time in (self._desk.next_due, self._queue_full_until) if time is not None]
        now = self._p.clock()
        return max(0.0, (min(due) - now).total_seconds()) if due else 0.0

    def _step_all(self) -> None:
        for key in self._desk.keys:
            ending = self._desk.step(key)
            if ending is not None:
                self._end(ending)

    # Rows of a segment.

    def _open(self, rows: SegmentRows) -> None:
        """Decide for each row of a segment whether it has to be sent."""
        rows.state[:] = SETTLED
        lent = {loan.row for loan in rows.loans if loan.source in self._segments}
        for row in self._work(rows).wanted():
            rows.state[row] = SETTLED if row in lent else OPEN
        self._history.apply(rows)
        for path in self._history.kept.get(rows.key, ()):
            for row in self._p.records.read_rows(path, self._p.dimension)[0]:
                rows.state[row] = KEPT

    def _work(self, rows: SegmentRows) -> SegmentWork:
        table, _ = self._p.chunks.chunks(rows.key)
        work = SegmentWork(table, self._p.dimension)
        work.reuse(rows.key.shard, rows.loans, self._p.chunks, self._p.vectors)
        return work

    def _is_ready(self, rows: SegmentRows) -> bool:
        """Nothing of the segment is to be sent, in a job, or waiting for a lender."""
        if rows.unsettled:
            return False
        return not any(
            loan.source in self._segments and rows.state[loan.row] == SETTLED for loan in rows.loans
        )

    def _settle(self) -> None:
        """Commit every segment that is ready; a lender that is done may make borrowers ready."""
        progress = True
        while progress:
            progress = False
            for rows in list(self._segments.values()):
                if self._is_ready(rows):
                    progress |= self._complete(rows, (), None)

    def _complete(self, rows: SegmentRows, fresh: Sequence[int], vectors: Vectors | None) -> bool:
        """Gather a segment's vectors and commit them; False when a row turns out to be open.

        Args:
            rows: of the segment.
            fresh: rows whose vectors are at hand.
            vectors: of these.
        """
        key = rows.key
        work = self._work(rows)
        for path in self._history.kept.get(key, ()):
            kept, stored = self._p.records.read_rows(path, self._p.dimension)
            for row, vector in zip(kept, stored, strict=True):
                work.fill(row, vector)
        for at, row in enumerate(fresh):
            assert vectors is not None
            work.fill(row, vectors[at])
        for row, reason in rows.dead.items():
            work.bury(row, *reason)
        work.spread()
        wanted = work.wanted()
        if wanted:
            # A lender could not lend after all.
            rows.state[wanted] = OPEN
            return False
        table, digest = self._p.chunks.chunks(key)
        self._p.vectors.commit(key, work.rows(), digest)
        outcome = outcome_of(
            table, self._p.vectors.read(key, digest), tokens=int(rows.tokens.sum())
        )
        self._done.append((key, outcome))
        del self._segments[key]
        return True

    # The end of a job.

    def _end(self, ending: Ending) -> None:
        intent, state = ending.intent, ending.state
        if ending.abandoned:
            self._give_up(intent, "abandoned", ending.abandoned)
        elif ending.collected is None:
            assert state is not None
            self._refused(intent, state)
        else:
            assert state is not None
            with ending.collected as collected:
                if collected.problem:
                    self._quarantine(intent, collected)
                self._finish(intent, state, collected)

    def _refused(self, intent: Intent, state: JobState) -> None:
        """The job never ran, and cost nothing."""
        said = "; ".join(f"{e.code}: {e.message}" for e in state.errors) or state.raw_status
        self._give_up(intent, "failed", said)
        if state.queue_full:
            wait = timedelta(seconds=self._p.policy.queue_full_wait)
            self._queue_full_until = self._p.clock() + wait
            return
        raise StopRunError(
            f"the provider refused embedding job {intent.key} as a whole: {said}",
            code="job-refused",
            hint="mend the cause and run the same command again; nothing was charged for it",
        )

    def _quarantine(self, intent: Intent, collected: Collected) -> None:
        self._give_up(intent, "quarantined", collected.problem, tokens=collected.tokens)
        raise StopRunError(
            f"the results of embedding job {intent.key} are not what was asked for, none of them "
            f"was used: {collected.problem}",
            code="quarantined",
            hint="ask the provider about the job; the same command sends its rows again",
        )

    def _give_up(
        self, intent: Intent, status: str, note: str, *, tokens: int | None = None
    ) -> None:
        """Close a job that brought nothing; its rows are open again, and were not tried."""
        outcome = JobOutcome(
            status=status,
            tokens=tokens,
            ended=self._p.clock().isoformat(),
            counted=False,
            again=intent.rows(),
            note=note,
        )
        self._close(intent, outcome)

    def _finish(self, intent: Intent, state: JobState, collected: Collected) -> None:
        kinds: Counter[str] = Counter()
        verdicts = self._verdicts(collected.failed, kinds)
        for key, rows, vectors in collected.segments():
            kinds["succeeded"] += len(rows)
            self._keep(intent, key, rows, vectors)
        tokens = state.tokens if state.tokens is not None else collected.tokens or None
        outcome = replace(
            verdicts,
            status=state.status,
            buckets=buckets_of(kinds),
            tokens=tokens,
            ended=self._p.clock().isoformat(),
        )
        self._close(intent, outcome)

    def _verdicts(self, failed: Sequence[FailedRow], kinds: Counter[str]) -> JobOutcome:
        """What becomes of the rows without a vector, as the rows' part of an outcome."""
        dead: list[tuple[int, int, int, str, str]] = []
        again: dict[SegmentKey, list[int]] = {}
        alone: dict[SegmentKey, list[int]] = {}
        for item in failed:
            tries = self._history.tries_of(item.key, item.row) + 1
            verdict = verdict_on_row(
                item.failure, tries, shared_request=item.shared, policy=self._p.policy
            )
            kinds[_bucket(item, verdict)] += 1
            if verdict == "dead":
                code, message = item.failure.code, item.failure.message
                dead.append((item.key.shard, item.key.number, item.row, code, message))
                continue
            again.setdefault(item.key, []).append(item.row)
            if verdict == "again-alone":
                alone.setdefault(item.key, []).append(item.row)
        return JobOutcome(status="", again=again, alone=alone, dead=tuple(dead))

    def _keep(self, intent: Intent, key: SegmentKey, rows: Sequence[int], vectors: Vectors) -> None:
        """Complete the segment if these rows do; else put them where they are safe."""
        if not rows or self._p.vectors.exists(key):
            return
        waiting = self._segments.get(key)
        if waiting is not None:
            waiting.state[list(rows)] = KEPT
            if self._is_ready(waiting) and self._complete(waiting, rows, vectors):
                return
        self._p.records.keep_rows(intent.key, key, rows, vectors)

    def _close(self, intent: Intent, outcome: JobOutcome) -> None:
        self._p.records.collected(intent.key, outcome)
        self._desk.close(intent.key)
        self._history.kept = self._p.records.kept_rows()
        self._history.land(intent.rows())
        self._remember(outcome)
        for key in intent.rows():
            if key in self._segments:
                self._open(self._segments[key])

    def _remember(self, outcome: JobOutcome) -> None:
        self._history.remember(
            outcome.again if outcome.counted else {}, outcome.alone, outcome.dead
        )

    # New jobs.

    def _send(self, *, flush: bool, late: bool) -> bool:
        """Send open rows, if there are enough; True when something was sent."""
        now = self._p.clock()
        if self._queue_full_until is not None and now < self._queue_full_until:
            return False
        self._queue_full_until = None
        opened = [rows for rows in self._segments.values() if (rows.state == OPEN).any()]
        count = sum(len(rows.open_rows()) for rows in opened)
        limits = self._p.provider.limits
        full = limits.inputs_per_file or limits.requests_per_file or _FULL_FILE
        if not count or (count < full and not flush):
            return False
        if self._p.realtime is not None and (late or count < self._p.realtime_below):
            return self._embed_now(opened)
        packed = self._p.packer.pack(opened, self._token_room())
        if packed is not None:
            self._intend(packed, now)
        return packed is not None

    def _token_room(self) -> int | None:
        most = self._p.provider.limits.enqueued_tokens
        return None if most is None else most - self._desk.tokens

    def _intend(self, packed: Packed, now: datetime) -> None:
        key = next(key for key in _keys(packed) if key not in self._known)
        file = replace(packed.file, job_key=key)
        intent = Intent(
            key=key,
            created=now,
            fingerprint=file.fingerprint,
            requests=packed.requests,
            inputs=file.inputs - packed.canaries,
            bytes=file.bytes,
            tokens=file.tokens,
            canaries=packed.canaries,
        )
        self._known.add(key)
        self._desk.begin(intent, file)
        self._history.fly(intent.rows())
        for segment, rows in intent.rows().items():
            self._segments[segment].state[rows] = FLYING
        ending = self._desk.step(key)
        if ending is not None:
            self._end(ending)

    def _embed_now(self, opened: Iterable[SegmentRows]) -> bool:
        """Open rows that are too few or too late for a job: the same model, without one."""
        assert self._p.realtime is not None
        for rows in opened:
            wanted = rows.open_rows()
            texts = self._work(rows).texts(wanted)
            embedded = self._p.realtime.embed(texts, "document")
            for at, failure in embedded.failures.items():
                rows.bury(wanted[at], failure.code, str(failure))
            good = [at for at in range(len(wanted)) if at not in embedded.failures]
            fresh = [wanted[at] for at in good]
            rows.state[fresh] = KEPT
            if not (self._is_ready(rows) and self._complete(rows, fresh, embedded.vectors[good])):
                key = f"realtime-{rows.key.shard}-{rows.key.number}-{min(wanted)}"
                self._p.records.keep_rows(key, rows.key, fresh, embedded.vectors[good])
                self._history.kept = self._p.records.kept_rows()
        return True


def _keys(packed: Packed) -> Iterator[str]:
    attempt = 0
    while True:
        yield job_key(packed.requests, attempt)
        attempt += 1


def _bucket(item: FailedRow, verdict: str) -> str:
    if item.missing:
        return "missing"
    if verdict == "dead":
        return "permanent"
    return "expired" if item.failure.kind == "expired" else "retryable"
