"""Patience with embedding jobs: what is tried in vain for too long is a person's to look at.

Of one process. Nothing is given up by it: the records are as they were, and the next run tries
anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from embedmill import job_stops
from embedmill.batch_provider import QUEUE_FULL
from embedmill.embedding_job import JobPolicy, JobProgress
from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    StopRunError,
    TransientError,
)

# Fewer are no sign of anything, however long ago the first one was.
_TRIES = 8
# A job that was cancelled by hand goes on for as long; OpenAI says ten minutes at most.
_ENDING = timedelta(minutes=15)


@dataclass(slots=True)
class _InVain:
    """Tries in a row that failed."""

    since: datetime
    most: timedelta
    tries: int = 0
    said: str = ""

    def too_long(self, now: datetime) -> bool:
        return self.tries >= _TRIES and now - self.since >= self.most


class JobPatience:
    """How long each job has been tried in vain."""

    def __init__(self, policy: JobPolicy, window_s: int | None) -> None:
        """Begin with none.

        Args:
            policy: how patient to be.
            window_s: within which the provider finishes jobs; None: not known.
        """
        self._most_failing = timedelta(seconds=policy.give_up_after)
        # Others' jobs may fill the queue for as long as a job takes.
        self.most_waiting = timedelta(seconds=policy.window_of(window_s) + policy.grace)
        self._failing: dict[str, _InVain] = {}
        self._waiting: dict[str, _InVain] = {}
        self._overdue: dict[str, datetime] = {}

    def failed(self, key: str, error: OutcomeUnknownError | TransientError, now: datetime) -> int:
        """A try to send a job, to find it or to read it was in vain.

        Returns:
            How often that has happened in a row.
        """
        if isinstance(error, RateLimitedError) or error.code == QUEUE_FULL:
            tries = self._waiting.setdefault(key, _InVain(now, self.most_waiting))
        else:
            tries = self._failing.setdefault(key, _InVain(now, self._most_failing))
        tries.tries += 1
        tries.said = str(error)
        return tries.tries

    def late(self, key: str, now: datetime) -> None:
        """A job should have ended long ago, and was seen running."""
        self._overdue.setdefault(key, now)

    def went_well(self, key: str) -> None:
        """The job exists, or is closed."""
        self._failing.pop(key, None)
        self._waiting.pop(key, None)
        self._overdue.pop(key, None)

    def over(self, now: datetime) -> set[str]:
        """Jobs of which nothing more is to be expected."""
        tried = self._failing.keys() | self._waiting.keys()
        late = {key for key, since in self._overdue.items() if now - since >= _ENDING}
        return late | {key for key in tried if self._exhausted(key, now)}

    def stop(self, job: JobProgress, now: datetime) -> StopRunError:
        """Why one of these jobs ends the run."""
        tries = self._exhausted(job.key, now)
        if tries is None:
            handle, state = job.handle, job.state
            return job_stops.overdue(
                job.key, handle.job_id if handle else "", state.raw_status if state else "unknown"
            )
        hours = (now - tries.since).total_seconds() / 3600
        often = f"{tries.tries} tries in {hours:.0f} hours"
        if job.handle is None:
            return job_stops.not_sent(job.key, often, tries.said)
        return job_stops.unreadable(job.key, f"{often}: {tries.said}")

    def _exhausted(self, key: str, now: datetime) -> _InVain | None:
        kinds = (self._failing.get(key), self._waiting.get(key))
        return next((tries for tries in kinds if tries and tries.too_long(now)), None)
