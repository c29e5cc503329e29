"""Runs embedding jobs for the segments it is offered: pack, submit, poll, collect, finish the rest.

The runner holds a few bytes for each row that waits. What it knows of jobs stands in the workspace
before and after every step that costs money, so that any process can take over at any point: a new
runner reads the records and goes on. One that was interrupted by an error is not to be used again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from embedmill import job_stops
from embedmill.batch_provider import NO_CREDIT, JobState
from embedmill.closing import let_go
from embedmill.embedding import EmbedOutcome
from embedmill.embedding_job import buckets_of, verdict_on_row
from embedmill.errors import StopRunError
from embedmill.job_collecting import Collected, FailedRow
from embedmill.job_desk import Ending, JobDesk, JobParts
from embedmill.job_packing import Packed
from embedmill.job_quota import JobQuota
from embedmill.job_records import TOO_LARGE, Intent, JobOutcome, job_key, outcome_of_too_large
from embedmill.job_rows import RowHistory, SegmentRows
from embedmill.job_segments import WaitingSegments
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan

log = logging.getLogger(__name__)
# When a provider states no limit.
_FULL_FILE = 50_000
# Rows of one realtime call: what a crash may lose, and pay for again.
_REALTIME_ROWS = 2_000
# A call that has taken this long does not begin another thing: whoever waits for it has a deadline.
_LONG = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Advance:
    """What one call of :meth:`JobRunner.advance` did.

    Attributes:
        done: segments that have vectors now.
        jobs: that are not collected.
        rows: that wait for a job or are in one.
        wait_s: nothing needs doing earlier than that.
        resting: all that can be sent now was sent, and the provider has it.
    """

    done: tuple[tuple[SegmentKey, EmbedOutcome], ...]
    jobs: int
    rows: int
    wait_s: float
    resting: bool


class JobRunner:
    """One poller for one account. Not for two at once on one index version."""

    def __init__(self, parts: JobParts) -> None:
        """Take up what earlier runners left."""
        self._p = parts
        self._desk = JobDesk(parts)
        self._quota = JobQuota(parts.provider.limits)
        self._known: set[str] = set()
        self._history = RowHistory()
        self._queue_full_until: datetime | None = None
        self._stop: StopRunError | None = None
        self._hurry: datetime | None = None
        self._postponed = False
        for key, outcome in parts.records.outcomes():
            self._known.add(key)
            if outcome.too_large:
                parts.packer.halve(outcome.too_large)
            self._history.remember(outcome.tried(), outcome.alone, outcome.dead)
            self._count_ended(key, outcome)
        for record in parts.records.open():
            record.require_provider(parts.provider.kind)
            record.require_account(parts.account)
            self._known.add(record.intent.key)
            self._desk.take_up(record)
            self._quota.created(record.intent.created)
            self._history.fly(record.intent.rows())
        self._segments = WaitingSegments(
            parts.chunks,
            parts.vectors,
            parts.records,
            self._history,
            drops_stale=parts.stale_share is not None,
        )

    def _count_ended(self, key: str, outcome: JobOutcome) -> None:
        """A job that an earlier process created within the hour counts, though it has ended."""
        if not outcome.ended:
            return
        if self._quota.may_count(datetime.fromisoformat(outcome.ended), self._p.clock()):
            handle = self._p.records.handle(key)
            if handle is not None:
                self._quota.created(handle.created_at)

    def close(self) -> None:
        """Close the provider's connections, where it has any."""
        let_go(self._p.provider)

    def offer(self, key: SegmentKey, loans: Sequence[Loan] = ()) -> None:
        """A segment needs vectors.

        Args:
            key: of the segment.
            loans: rows whose text another segment had earlier in this run.
        """
        self._segments.offer(key, loans)

    def advance(self, *, flush: bool) -> Advance:
        """Do what is due now, without waiting for anything.

        Args:
            flush: no more segments will come soon: send files that are not full.

        Raises:
            StopRunError: credentials, money, a job that could not be used, or one that does not
                end while nothing else goes on; the records are whole.
        """
        self._postponed = False
        self._hurry = self._p.clock() + _LONG
        late = self._p.deadline is not None and self._p.clock() >= self._p.deadline
        late = late and self._p.realtime is not None
        if late:
            self._desk.doom(self._desk.endable, "it is too late for it")
        self._desk.cancel_doomed()
        self._step_all()
        self._segments.settle()
        if self._stop is not None:
            raise self._stop
        self._let_go()
        while self._send(flush=flush, late=late):
            if self._takes_long():
                break
        if flush and not self._postponed:
            self._release()
            self._desk.refuse_overdue()
        return Advance(
            done=self._segments.take_done(),
            jobs=len(self._desk),
            rows=self._segments.waiting,
            wait_s=self._wait_s(),
            resting=not self._postponed and not self._desk.sending,
        )

    def _takes_long(self) -> bool:
        assert self._hurry is not None
        self._postponed |= self._p.clock() > self._hurry
        return self._postponed

    def _release(self) -> None:
        """Segments that wait for one another while nothing is on its way wait no longer."""
        while len(self._segments) and not len(self._desk) and not self._segments.opened():
            if self._queue_full_until is not None:
                return
            self._segments.release()
            while self._send(flush=True, late=False):
                pass

    def _wait_s(self) -> float:
        if self._postponed:
            return 0.0
        due = [time for time in (self._desk.next_due, self._queue_full_until) if time is not None]
        now = self._p.clock()
        if self._p.deadline is not None and now < self._p.deadline:
            due.append(self._p.deadline)
        return max(0.0, (min(due) - now).total_seconds()) if due else 0.0

    def _let_go(self) -> None:
        """Send no rows that nobody wants any more, and end jobs that hold too many of them."""
        unwanted = self._segments.drop_stale()
        if unwanted and self._p.stale_share is not None:
            kept = self._p.provider.limits.cancelled_rows_are_kept
            keys = self._desk.holding(unwanted, self._p.stale_share if kept else 1.0)
            self._desk.doom(keys, "its rows are no longer wanted")
            self._desk.cancel_doomed()

    def _step_all(self) -> None:
        for key in self._desk.keys:
            ending = self._desk.step(key)
            if ending is not None:
                self._end(ending)
            if self._takes_long():
                return

    # The end of a job.

    def _end(self, ending: Ending) -> None:
        intent, state = ending.intent, ending.state
        if ending.status == TOO_LARGE:
            self._too_large(intent, ending.given_up)
        elif ending.given_up:
            needed = self._segments.wait_for(intent.rows())
            self._give_up(intent, ending.status, ending.given_up)
            if ending.status != "abandoned" and needed:
                stop = job_stops.refused if ending.status == "refused" else job_stops.gone
                self._stop = stop(intent.key, ending.given_up)
        elif ending.collected is None:
            assert state is not None
            self._refused(intent, state)
        else:
            assert state is not None
            with ending.collected as collected:
                if collected.problem:
                    self._quarantine(intent, state, collected)
                else:
                    self._finish(intent, state, collected)

    def _refused(self, intent: Intent, state: JobState) -> None:
        """The job brought nothing: it never ran and cost nothing, or what it did is lost."""
        if state.status != "failed":
            self._give_up(intent, state.status, "it ended without results", tokens=state.tokens)
            return
        said = "; ".join(f"{e.code}: {e.message}" for e in state.errors) or state.raw_status
        if state.too_large:
            self._too_large(intent, said)
            return
        self._give_up(intent, "failed", said)
        if state.queue_full:
            wait = timedelta(seconds=self._p.policy.queue_full_wait)
            self._queue_full_until = self._p.clock() + wait
            return
        self._stop = job_stops.failed(intent.key, said, unpaid=state.unpaid)

    def _too_large(self, intent: Intent, said: str) -> None:
        """The provider takes no file of this size: half of it is sent; a text alone in one dies."""
        told = "embedding job %s, too large with %d texts, is sent in parts: %s"
        log.warning(told, intent.key, intent.inputs, said)
        self._p.packer.halve(intent.inputs)
        self._close(intent, outcome_of_too_large(intent, said, self._p.clock()))

    def _quarantine(self, intent: Intent, state: JobState, collected: Collected) -> None:
        tokens = state.tokens if state.tokens is not None else collected.tokens or None
        self._give_up(intent, "quarantined", collected.problem, tokens=tokens)
        self._stop = job_stops.quarantined(intent.key, collected.problem)

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
        # Of a job that we ended ourselves the rows are not to blame.
        counted = not self._desk.is_cancelled(intent.key)
        verdicts = self._verdicts(collected.failed, kinds, counted=counted)
        for key, rows, vectors in collected.segments():
            kinds["succeeded"] += len(rows)
            self._segments.keep(intent.key, key, rows, vectors)
        tokens = state.tokens if state.tokens is not None else collected.tokens or None
        outcome = replace(
            verdicts,
            status=state.status,
            buckets=buckets_of(kinds),
            tokens=tokens,
            ended=self._p.clock().isoformat(),
            counted=counted,
        )
        self._close(intent, outcome)
        unpaid = [row.failure for row in collected.failed if row.failure.code == NO_CREDIT]
        if unpaid:
            self._stop = job_stops.unpaid(intent.key, unpaid)

    def _verdicts(
        self, failed: Sequence[FailedRow], kinds: Counter[str], *, counted: bool
    ) -> JobOutcome:
        """What becomes of the rows without a vector, as the rows' part of an outcome."""
        dead: list[tuple[int, int, int, str, str]] = []
        again: dict[SegmentKey, list[int]] = {}
        alone: dict[SegmentKey, list[int]] = {}
        untried: dict[SegmentKey, list[int]] = {}
        for item in failed:
            tries = self._history.tries_of(item.key, item.row) + 1 if counted else 0
            verdict = verdict_on_row(
                item.failure, tries, shared_request=item.shared, policy=self._p.policy
            )
            kinds[_bucket(item, verdict)] += 1
            if verdict == "dead":
                code, message = item.failure.code, item.failure.message
                dead.append((item.key.shard, item.key.number, item.row, code, message))
                continue
            again.setdefault(item.key, []).append(item.row)
            if item.failure.code == NO_CREDIT:
                untried.setdefault(item.key, []).append(item.row)
            if verdict == "again-alone":
                alone.setdefault(item.key, []).append(item.row)
        return JobOutcome(status="", again=again, untried=untried, alone=alone, dead=tuple(dead))

    def _close(self, intent: Intent, outcome: JobOutcome) -> None:
        self._p.records.collected(intent.key, outcome)
        self._desk.close(intent.key)
        self._segments.land(intent.rows(), outcome)

    # New jobs.

    def _send(self, *, flush: bool, late: bool) -> bool:
        """Send open rows, if there are enough; True when there may be more to send."""
        now = self._p.clock()
        if self._queue_full_until is not None and now < self._queue_full_until:
            return False
        self._queue_full_until = None
        opened = self._segments.opened()
        count = sum(rows.open_count for rows in opened)
        full = self._p.packer.inputs_per_file or _FULL_FILE
        if not count or (count < full and not flush):
            return False
        if self._p.realtime is not None and (late or count < self._p.realtime_below):
            self._embed_now(opened[0])
            return True
        # One file at a time lies on our disk; and where one has to wait, so has the next.
        if self._desk.unsent or not self._may_create(min(count, full)):
            return False
        packed = self._p.packer.pack(opened, self._token_room())
        if packed is not None:
            self._intend(packed, now)
        # Rows that no file takes have died.
        self._segments.settle(opened)
        return packed is not None

    def _may_create(self, requests: int) -> bool:
        """Whether the provider takes another job now."""
        self._queue_full_until = self._quota.open_from(self._p.clock())
        return self._queue_full_until is None and self._quota.has_room(
            len(self._desk), self._desk.requests, requests
        )

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
            provider=self._p.provider.kind,
            account=self._p.account,
        )
        self._known.add(key)
        self._quota.created(now)
        self._desk.begin(intent, file)
        self._segments.fly(intent.rows())
        ending = self._desk.step(key)
        if ending is not None:
            self._end(ending)
        if self._stop is not None:
            raise self._stop

    def _embed_now(self, rows: SegmentRows) -> None:
        """Open rows that are too few or too late for a job: the same model, without one."""
        assert self._p.realtime is not None
        wanted = rows.open_rows()[:_REALTIME_ROWS]
        embedded = self._p.realtime.embed(self._segments.texts(rows, wanted), "document")
        for at, failure in embedded.failures.items():
            rows.bury(wanted[at], failure.code, str(failure))
        good = [at for at in range(len(wanted)) if at not in embedded.failures]
        fresh = [wanted[at] for at in good]
        # By a row that is kept: one that was refused may be the first again in a later process.
        name = f"realtime-{rows.key.shard}-{rows.key.number}-{min(fresh, default=0)}"
        self._segments.keep(name, rows.key, fresh, embedded.vectors[good])
        self._segments.settle([rows])


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
