"""The desk: every embedding job that is not collected, and the next step of each.

Talks to the provider and writes the records; what a job's rows mean is not its business.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from embedmill import job_stops
from embedmill.batch_provider import FILE_TOO_LARGE, QUEUE_FULL, JobState, RequestFile
from embedmill.embedding_job import (
    JobProgress,
    after_not_found,
    after_pause,
    after_poll,
    after_refused_for_now,
    after_submit,
    after_unknown,
    next_step,
)
from embedmill.errors import (
    OutcomeUnknownError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    TransientError,
)
from embedmill.job_collecting import Collected, collect
from embedmill.job_parts import JobParts
from embedmill.job_patience import JobPatience
from embedmill.job_records import TOO_LARGE, UNNEEDED, Intent, JobRecord
from embedmill.segment import SegmentKey

log = logging.getLogger(__name__)
# Tries to send a job that are told of without being asked: more and more seldom.
_TOLD = frozenset({3, 10, 30, 100, 300})
_HAVE_VECTORS = "its rows have vectors already"
# A new job may be unknown to the servers that are asked about it.
_SHOWS_WITHIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that is at its end.

    Attributes:
        intent: what it was for.
        state: the provider's last word; None when the job was never there.
        collected: its outcomes, to be closed by the caller; None when there are none.
        given_up: why nothing can come of it; "" otherwise.
        status: for the record, when it was given up: ``abandoned`` before it existed; ``refused``
            by the provider, which would refuse it again, or ``too-large``; ``lost``, with what it
            brought; ``unneeded``.
    """

    intent: Intent
    state: JobState | None
    collected: Collected | None
    given_up: str = ""
    status: str = "abandoned"


class JobDesk:
    """Jobs between intent and outcome.

    Attributes:
        patience: with them.
    """

    def __init__(self, parts: JobParts) -> None:
        self._p = parts
        self._jobs: dict[str, JobProgress] = {}
        self._intents: dict[str, Intent] = {}
        self._files: dict[str, RequestFile] = {}
        # Jobs that are to end, and why.
        self._doomed: dict[str, str] = {}
        self._cancelled: set[str] = set()
        self.patience = JobPatience(parts.policy, parts.provider.limits.window_s)
        # Jobs of rows that have vectors: their end is written down, and nobody waits for it.
        self._unneeded: set[str] = set()

    def __len__(self) -> int:
        """Jobs whose rows wait for them."""
        return len(self._jobs) - len(self._unneeded)

    @property
    def under_way(self) -> int:
        """Jobs that are not closed."""
        return len(self._jobs)

    @property
    def keys(self) -> list[str]:
        """Of these jobs, in a stable order."""
        return sorted(self._jobs)

    @property
    def endable(self) -> list[str]:
        """Jobs that can be ended without a loss of what was paid for."""
        kept = self._p.provider.limits.cancelled_rows_are_kept
        return [key for key, job in self._jobs.items() if kept or job.handle is None]

    @property
    def tokens(self) -> int:
        """That wait in these jobs, as counted here."""
        return sum(intent.tokens for intent in self._intents.values())

    @property
    def requests(self) -> int:
        """Lines of the files of these jobs."""
        return sum(len(it.requests) + it.canaries for it in self._intents.values())

    @property
    def next_due(self) -> datetime | None:
        """When the next of them has something to do; None when there are none."""
        now = self._p.clock()
        return min((job.not_before or now for job in self._jobs.values()), default=None)

    @property
    def unsent(self) -> int:
        """Jobs that do not exist at the provider, as far as is known."""
        return sum(job.handle is None for job in self._needed())

    def _needed(self) -> list[JobProgress]:
        return [job for key, job in self._jobs.items() if key not in self._unneeded]

    @property
    def sending(self) -> bool:
        """A job does not exist yet, and will or will not within the next minute."""
        soon = self._p.clock() + timedelta(seconds=self._p.policy.listing_lag)
        return any(
            job.handle is None and (job.not_before is None or job.not_before <= soon)
            for job in self._needed()
        )

    def take_up(self, record: JobRecord, *, needed: bool) -> None:
        """A job that an earlier process left without outcome.

        Whatever that process did last, it did before now.

        Args:
            record: of the job.
            needed: whether a row of it has no vector yet. Where none has not, results are not
                fetched, and an intent is not sent.
        """
        key, now = record.intent.key, self._p.clock()
        if not needed:
            self._unneeded.add(key)
        self._intents[key] = record.intent
        self._jobs[key] = JobProgress(
            key, record.intent.created, sure=False, last_try=now, handle=record.handle
        )

    def begin(self, intent: Intent, file: RequestFile) -> None:
        """A new job, whose intent is written now."""
        self._p.records.intend(intent)
        self._intents[intent.key] = intent
        self._files[intent.key] = file
        self._jobs[intent.key] = JobProgress(intent.key, intent.created, sure=True)

    def close(self, key: str) -> None:
        """The outcome of a job is written; forget it."""
        del self._jobs[key], self._intents[key]
        self._doomed.pop(key, None)
        self._cancelled.discard(key)
        self.patience.went_well(key)
        self._unneeded.discard(key)
        self._forget_file(key)

    def holding(self, rows: Mapping[SegmentKey, set[int]], share: float) -> list[str]:
        """Jobs of whose rows at least this share is among the given ones."""
        held = []
        for key, intent in self._intents.items():
            flown = intent.rows()
            count = sum(len(some.intersection(flown.get(at, ()))) for at, some in rows.items())
            if count and count >= share * intent.inputs:
                held.append(key)
        return held

    def doom(self, keys: Iterable[str], why: str) -> None:
        """Let jobs end: those that do not exist yet are not sent, the others cancelled."""
        for key in keys:
            self._doomed.setdefault(key, why)

    def cancel_doomed(self) -> None:
        """Ask the provider to cancel doomed jobs; what fails is asked again next time."""
        for key in self._doomed.keys() - self._cancelled:
            job = self._jobs[key]
            if job.handle is None:
                continue
            try:
                self._p.provider.cancel(job.handle)
            except (TransientError, RefusedError) as error:
                log.warning("embedding job %s cannot be cancelled now: %s", key, error)
            else:
                log.info("embedding job %s is cancelled: %s", key, self._doomed[key])
                self._cancelled.add(key)

    def taken(self) -> Sequence[Intent]:
        """Jobs whose file the provider is known to have taken."""
        states = {key: job.state for key, job in self._jobs.items()}
        return [self._intents[key] for key, state in states.items() if state and state.taken]

    def sent(self) -> Sequence[Intent]:
        """Jobs that the provider has created, and of which it has not said that they failed."""
        return [self._intents[key] for key, job in self._jobs.items() if job.handle]

    def is_cancelled(self, key: str) -> bool:
        """Whether we asked for its end."""
        return key in self._cancelled

    def refuse_endless(self) -> None:
        """Nothing can be done but to wait for jobs that were waited for, or tried, long enough.

        Raises:
            StopRunError: that is so.
        """
        now = self._p.clock()
        over = self.patience.over(now) - self._unneeded
        if over and len(over) == len(self):
            raise self.patience.stop(self._jobs[min(over)], now)

    def step(self, key: str) -> Ending | None:
        """Do what is due for a job, without waiting.

        Raises:
            StopRunError: no call can succeed.
        """
        job = self._jobs[key]
        if key in self._doomed and job.sure and job.handle is None:
            return self._given_up(key, self._doomed[key])
        window = self._p.provider.limits.window_s
        step = next_step(job, self._p.clock(), window, self._p.policy)
        if step == "submit":
            why = self._not_to_be_sent(key)
            return self._given_up(key, why) if why else self._submit(job)
        if step == "look":
            self._look(job)
        elif step in {"poll", "overdue"}:
            if step == "overdue":
                log.warning("embedding job %s should have ended long ago", key)
                self.patience.late(key, self._p.clock())
            self._poll(job)
        job = self._jobs[key]
        if job.state is not None and job.state.terminal:
            return self._collect(job)
        return None

    def _not_to_be_sent(self, key: str) -> str:
        """Why an intent that was surely not sent stays so; "" when it is to be sent."""
        if key in self._unneeded:
            return _HAVE_VECTORS
        if not self._p.new_jobs:
            return "it was never sent, and the settings ask for no jobs any more"
        return self._doomed.get(key, "")

    def _given_up(self, key: str, why: str) -> Ending:
        log.info("embedding job %s is not sent: %s", key, why)
        return Ending(self._intents[key], None, None, why)

    def _submit(self, job: JobProgress) -> Ending | None:
        file = self._files.get(job.key) or self._written_again(job)
        if file is None:
            return self._given_up(job.key, "its file can no longer be made")
        # Of an earlier try the upload may be there.
        since = job.intended if job.last_try is not None else None
        policy = self._p.policy
        try:
            handle = self._p.provider.submit(
                file, job_key=job.key, fingerprint=file.fingerprint, uploaded_since=since
            )
        except OutcomeUnknownError as error:
            log.warning("embedding job %s may exist (%s): looking for it", job.key, error)
            self.patience.failed(job.key, error, self._p.clock())
            self._jobs[job.key] = after_unknown(job, self._p.clock())
        except TransientError as error:
            wait = policy.queue_full_wait if error.code == QUEUE_FULL else _stated_wait(error)
            self.patience.failed(job.key, error, self._p.clock())
            job = after_refused_for_now(job, self._p.clock(), wait, policy)
            self._jobs[job.key] = job
            level = logging.WARNING if job.refusals in _TOLD else logging.INFO
            told = "embedding job %s could not be sent (try %d), again at %s: %s"
            log.log(level, told, job.key, job.refusals, f"{job.not_before:%H:%M:%S} UTC", error)
        except RefusedError as error:
            status = TOO_LARGE if error.code == FILE_TOO_LARGE else "refused"
            return Ending(self._intents[job.key], None, None, str(error), status)
        else:
            self._exists(after_submit(job, handle, self._p.clock(), policy))
        return None

    def _written_again(self, job: JobProgress) -> RequestFile | None:
        """The file of an intent that another process left; None when its bytes differ now."""
        intent = self._intents[job.key]
        try:
            packed = self._p.packer.again(intent.requests, intent.canaries)
        except PermanentError:
            # No file takes one of its texts any more: limits are others than they were.
            return None
        file = replace(packed.file, job_key=job.key)
        if file.fingerprint != intent.fingerprint:
            file.path.unlink(missing_ok=True)
            return None
        self._files[job.key] = file
        return file

    def _look(self, job: JobProgress) -> None:
        intent, looked = self._intents[job.key], self._p.clock()
        try:
            handle = self._p.provider.find(
                job_key=job.key, fingerprint=intent.fingerprint, since=intent.created
            )
        except TransientError as error:
            self._jobs[job.key] = after_pause(job, self._p.clock(), self._longer_wait(job, error))
            return
        if handle is None:
            self._jobs[job.key] = after_not_found(job, looked, self._p.policy)
        else:
            log.info("embedding job %s found again as %s", job.key, handle.job_id)
            self._exists(after_submit(job, handle, self._p.clock(), self._p.policy))

    def _exists(self, job: JobProgress) -> None:
        assert job.handle is not None
        self._p.records.submitted(job.key, job.handle)
        self._jobs[job.key] = job
        self.patience.went_well(job.key)
        self._forget_file(job.key)

    def _poll(self, job: JobProgress) -> None:
        assert job.handle is not None
        state: JobState | None
        try:
            state = self._p.provider.state(job.handle)
        except TransientError as error:
            log.info("asking for embedding job %s failed: %s", job.key, error)
            state = None
        except RefusedError as error:
            old = self._p.clock() - job.handle.created_at > _SHOWS_WITHIN
            if old and job.key not in self._unneeded:
                elsewhere = self._intents[job.key].account not in {"", self._p.account}
                raise job_stops.unknown(job.key, str(error), elsewhere=elsewhere) from error
            state = None
        now = self._p.clock()
        self._jobs[job.key] = after_poll(job, state, now, self._p.policy, self._p.dice)

    def _collect(self, job: JobProgress) -> Ending | None:
        assert job.handle is not None
        assert job.state is not None
        intent = self._intents[job.key]
        if job.key in self._unneeded:
            return Ending(intent, job.state, None, f"{_HAVE_VECTORS}: not fetched", UNNEEDED)
        if job.state.status == "failed" or job.state.brought_nothing:
            return Ending(intent, job.state, None)
        try:
            collected = collect(
                intent,
                self._p.provider.outcomes(job.handle),
                dimension=self._p.dimension,
                canaries=self._p.canaries if intent.canaries else None,
                scratch=self._p.scratch,
            )
        except TransientError as error:
            self._collect_later(job, error)
            return None
        except RefusedError as error:
            if error.code == "not-finished":
                self._collect_later(job, TransientError(str(error)))
                return None
            if error.code != "results-gone":
                raise job_stops.unreadable(job.key, str(error)) from error
            return Ending(intent, job.state, None, str(error), "lost")
        return Ending(intent, job.state, collected)

    def _collect_later(self, job: JobProgress, error: TransientError) -> None:
        """Ask for the state once more before the next try: files may have changed."""
        wait = self._longer_wait(job, error)
        log.warning("results of embedding job %s: %s; again in %.0f s", job.key, error, wait)
        self._jobs[job.key] = replace(after_pause(job, self._p.clock(), wait), state=None)

    def _longer_wait(self, job: JobProgress, error: TransientError) -> float:
        """Seconds to wait after one more try in vain, which may have read gigabytes."""
        tries = self.patience.failed(job.key, error, self._p.clock())
        return max(_stated_wait(error) or 0.0, self._p.policy.longer(tries - 1))

    def _forget_file(self, key: str) -> None:
        file = self._files.pop(key, None)
        if file is not None:
            file.path.unlink(missing_ok=True)


def _stated_wait(error: TransientError) -> float | None:
    return error.retry_after if isinstance(error, RateLimitedError) else None
