"""Runs embedding jobs for the segments it is offered: pack, submit, poll, have the ended closed.

The runner holds a few bytes for each row that waits. What it knows of jobs stands in the workspace
before and after every step that costs money, so that any process can take over at any point: a new
runner reads the records and goes on. One that was interrupted by an error is not to be used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from embedmill import job_stops
from embedmill.closing import let_go
from embedmill.embedding import EmbedOutcome
from embedmill.errors import RefusedError
from embedmill.job_desk import Ending, JobDesk
from embedmill.job_endings import JobEndings
from embedmill.job_file_sizes import FileSizes
from embedmill.job_packing import Packed
from embedmill.job_parts import JobParts
from embedmill.job_quota import JobQuota
from embedmill.job_records import Intent, JobOutcome, JobRecord, job_key
from embedmill.job_rows import RowHistory, SegmentRows
from embedmill.job_segments import WaitingSegments
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan
from embedmill.work_left import lacking_vectors

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
        # No job has ended otherwise since.
        self._queue_full_since: datetime | None = None
        self._hurry: datetime | None = None
        self._postponed = False
        self._sizes = FileSizes()
        for key, outcome in parts.records.outcomes():
            self._known.add(key)
            self._sizes.remember(outcome)
            self._history.remember(outcome.tried(), outcome.alone, outcome.dead)
            self._count_ended(key, outcome)
        lacks = lacking_vectors(parts.chunks, parts.vectors)
        for record in parts.records.open():
            self._take_up(record, needed=any(map(lacks, record.intent.rows())))
        self._segments = WaitingSegments(
            parts.chunks,
            parts.vectors,
            parts.records,
            self._history,
            drops_stale=parts.stale_share is not None,
        )
        self._endings = JobEndings(parts, self._desk, self._segments, self._history, self._sizes)

    def _take_up(self, record: JobRecord, *, needed: bool) -> None:
        """A job without outcome goes on; who needs none of its rows is not stopped by where it is.

        Raises:
            RefusedError: it cannot be found with these settings, and its rows are needed.
        """
        self._known.add(record.intent.key)
        self._quota.created(record.intent.created)
        try:
            record.require_provider(self._p.provider.kind)
            record.require_account(self._p.account)
        except RefusedError:
            if needed:
                raise
            return
        self._desk.take_up(record, needed=needed)
        if needed:
            self._history.fly(record.intent.rows())

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
        if self._endings.stop is not None:
            raise self._endings.stop
        self._let_go()
        while self._send(flush=flush, late=late):
            if self._takes_long():
                break
        if flush and not self._postponed:
            self._release()
            self._desk.refuse_endless()
        return Advance(
            done=self._segments.take_done(),
            jobs=len(self._desk),
            rows=self._segments.waiting,
            wait_s=self._wait_s(),
            resting=not (self._postponed or self._desk.sending or self._sizes.probe),
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
            self._step(key)
            if self._takes_long():
                return

    def _step(self, key: str) -> None:
        ending = self._desk.step(key)
        if ending is None:
            self._endings.look_at_probe()
        elif self._endings.end(ending):
            self._wait_for_queue(ending)
        else:
            self._queue_full_since = None

    def _wait_for_queue(self, ending: Ending) -> None:
        now = self._p.clock()
        self._queue_full_until = now + timedelta(seconds=self._p.policy.queue_full_wait)
        since = self._queue_full_since = self._queue_full_since or now
        if not len(self._desk) and now - since >= self._desk.patience.most_waiting:
            assert ending.state is not None
            said = "; ".join(error.message for error in ending.state.errors)
            self._endings.stop = job_stops.queue_full(said)

    # New jobs.

    def _send(self, *, flush: bool, late: bool) -> bool:
        """Send open rows, if there are enough; True when there may be more to send."""
        now = self._p.clock()
        if self._queue_full_until is not None and now < self._queue_full_until:
            return False
        self._queue_full_until = None
        opened = self._segments.opened()
        count = sum(rows.open_count for rows in opened)
        self._p.packer.limit(self._sizes.most)
        full = self._p.packer.inputs_per_file or _FULL_FILE
        if not count:
            # Nothing is left that could tell whose fault it is that texts were refused alone.
            return flush and self._judge_texts(late=late)
        if count < full and not flush:
            return False
        if self._p.realtime is not None and (late or self._without_job(count)):
            self._embed_now(opened[0])
            return True
        # One file at a time lies on our disk; and where one has to wait, so has the next.
        if self._sizes.probe or self._desk.unsent or not self._may_create(min(count, full)):
            return False
        packed = self._p.packer.pack(opened, self._token_room(), shortest=self._sizes.doubtful > 0)
        if packed is not None:
            self._intend(packed, now)
        # Rows that no file takes have died.
        self._segments.settle(opened)
        return packed is not None or sum(rows.open_count for rows in opened) < count

    def _without_job(self, rows: int) -> bool:
        return not self._p.new_jobs or rows < self._p.realtime_below

    def _judge_texts(self, *, late: bool) -> bool:
        """Texts that were refused alone go without jobs or are dead; True when there were any."""
        count = self._sizes.doubtful
        if not count or self._sizes.probe:
            return False
        if self._p.realtime is not None and (late or self._without_job(count)):
            self._endings.clear_texts()
        else:
            self._endings.blame_texts()
        self._segments.settle()
        return True

    def _may_create(self, requests: int) -> bool:
        """Whether the provider takes another job now."""
        self._queue_full_until = self._quota.open_from(self._p.clock())
        return self._queue_full_until is None and self._quota.has_room(
            self._desk.under_way, self._desk.requests, requests
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
        if self._sizes.one_by_one:
            self._sizes.probe = key
        self._step(key)
        if self._endings.stop is not None:
            raise self._endings.stop

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
