"""Embedding jobs at Cohere, through either of its two ways: a dataset in, a dataset out.

Without Cohere's own client: it repeats creations that fail, and reads parts of a result without a
look at their status, their size or the number of their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from embedmill.batch_provider import (
    BatchLimits,
    JobHandle,
    JobState,
    ListedJob,
    RequestFile,
    RowOutcome,
)
from embedmill.batch_providers.cohere_datasets import CLOCK_SKEW, CohereDatasets, ReadPart
from embedmill.batch_providers.cohere_http import CohereHttp
from embedmill.batch_providers.cohere_wire import name_of, parts_of_name
from embedmill.errors import RefusedError, TransientError
from embedmill.recipe import EmbeddingRecipe


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job as a listing of Cohere's shows it."""

    name: str | None
    handle: JobHandle
    state: JobState


class CohereWay(Protocol):
    """How one kind of job is created and asked about; see the module of each.

    Attributes:
        kind: of handles.
        noun: for messages.
    """

    kind: str
    noun: str

    def create(self, dataset_id: str, name: str) -> JobHandle:
        """Create a job; see :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.submit`."""
        ...

    def state(self, job_id: str) -> JobState:
        """Ask how a job stands."""
        ...

    def listed(self, since: datetime) -> Iterator[NamedJob]:
        """Jobs that are not older, in any order."""
        ...

    def cancel(self, job_id: str) -> None:
        """Ask for a job to be cancelled.

        Raises:
            RefusedError: it has ended already, or is not there.
        """
        ...


@dataclass(frozen=True, slots=True)
class CohereParts:
    """What a provider is made of.

    Attributes:
        http: of the account.
        way: that jobs take.
        datasets: of that way.
        read: reads a part of a result.
        recipe: of the vectors.
        limits: of the way.
    """

    http: CohereHttp
    way: CohereWay
    datasets: CohereDatasets
    read: ReadPart
    recipe: EmbeddingRecipe
    limits: BatchLimits


@dataclass(frozen=True, slots=True)
class Pace:
    """What tells the time, and lets it pass.

    Attributes:
        sleep: waits for seconds.
        now: seconds since the epoch.
    """

    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time


class CohereJobProvider:
    """See :class:`~embedmill.batch_provider.BatchEmbeddingProvider`.

    Jobs and datasets have no metadata: their names carry what finds them again.
    """

    def __init__(self, parts: CohereParts) -> None:
        self.kind = parts.way.kind
        self.limits = parts.limits
        self._p = parts
        self._way = parts.way

    def close(self) -> None:
        """Close the connections."""
        self._p.http.close()

    def submit(
        self,
        requests: RequestFile,
        *,
        job_key: str,
        fingerprint: str,
        uploaded_since: datetime | None = None,
    ) -> JobHandle:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.submit`.

        A dataset takes its time to be validated. Until then this raises ``TransientError`` with
        code ``dataset-not-ready``: the next try finds the dataset by its name.
        """
        name = name_of(job_key, fingerprint, self._p.recipe)
        return self._way.create(self._p.datasets.ready(requests, name, uploaded_since), name)

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.find`."""
        name = name_of(job_key, fingerprint, self._p.recipe)
        found = [job for job in self._way.listed(since - CLOCK_SKEW) if job.name == name]
        found.sort(key=lambda job: (job.state.status == "failed", job.handle.created_at))
        return found[0].handle if found else None

    def state(self, job: JobHandle) -> JobState:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.state`."""
        if job.provider != self.kind:
            raise RefusedError(
                f"{job.job_id} was sent through {job.provider}, it is no {self._way.noun}",
                code="other-jobs",
                hint="set embedder.jobs_through as it was until it has ended",
            )
        return self._way.state(job.job_id)

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.outcomes`."""
        state = self.state(job)
        if not state.terminal:
            raise RefusedError(
                f"{self._way.noun} {job.job_id} is {state.raw_status}, it has no results yet",
                code="not-finished",
            )
        if not state.output_file_id:
            return iter(())
        return self._p.datasets.outcomes(state.output_file_id, self._p.read)

    def cancel(self, job: JobHandle) -> None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.cancel`.

        What it has done is charged for, and lost.
        """
        try:
            self._way.cancel(job.job_id)
        except (RefusedError, TransientError):
            if not self.state(job).terminal:
                raise

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.list_jobs`."""
        jobs = sorted(self._way.listed(since), key=lambda job: job.handle.created_at, reverse=True)
        for job in jobs:
            # A name holds the beginning of the fingerprint only.
            key, _ = parts_of_name(job.name)
            yield ListedJob(job.handle, job.state, key, "")
