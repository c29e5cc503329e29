"""How many jobs and requests a provider takes at a time, and how many jobs in an hour."""

from __future__ import annotations

from datetime import datetime, timedelta

from embedmill.batch_provider import BatchLimits

_HOUR = timedelta(hours=1)


class JobQuota:
    """Counts the jobs of this index version, by whatever process; of others the provider tells."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._created: list[datetime] = []

    def created(self, when: datetime) -> None:
        """A job was created, or will be."""
        self._created.append(when)

    def may_count(self, ended: datetime, now: datetime) -> bool:
        """Whether it matters when a job was created that has ended."""
        return self._limits.creations_per_hour is not None and now - ended < _HOUR

    def open_from(self, now: datetime) -> datetime | None:
        """When another job may be created; None: now."""
        self._created = sorted(moment for moment in self._created if now - moment < _HOUR)
        most = self._limits.creations_per_hour
        if most is None or len(self._created) < most:
            return None
        return self._created[-most] + _HOUR

    def has_room(self, jobs: int, waiting: int, more: int) -> bool:
        """Whether another job may be under way.

        Args:
            jobs: that are not finished.
            waiting: requests of these.
            more: requests that another would have at most.
        """
        if self._limits.jobs_at_a_time is not None and jobs >= self._limits.jobs_at_a_time:
            return False
        most = self._limits.enqueued_requests
        # One that is alone is never too large: the file has a limit of its own.
        return most is None or not jobs or waiting + more <= most
