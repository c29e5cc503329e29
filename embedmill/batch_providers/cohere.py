"""Embedding jobs at Cohere: a dataset in, an embed job, a dataset of Avro parts out.

Without Cohere's own client: it repeats creations that fail, and reads parts of a result without a
look at their status, their size or the number of their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from embedmill.batch_provider import (
    BatchLimits,
    JobHandle,
    JobState,
    ListedJob,
    RequestFile,
    RowOutcome,
)
from embedmill.batch_providers.cohere_datasets import CLOCK_SKEW, CohereDatasets
from embedmill.batch_providers.cohere_http import CohereHttp
from embedmill.batch_providers.cohere_limits import KEPT_FIELD, cohere_limits
from embedmill.batch_providers.cohere_results import outcomes_of_part
from embedmill.batch_providers.cohere_wire import (
    PROVIDER,
    EmbedJob,
    EmbedJobs,
    JobId,
    handle_of,
    moment_of,
    name_of,
    parts_of_name,
    state_of,
)
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.errors import RefusedError, TransientError
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret


class CohereJobProvider:
    """See :class:`~embedmill.batch_provider.BatchEmbeddingProvider`.

    Jobs and datasets have no metadata: their names carry what finds them again.
    """

    def __init__(
        self,
        settings: CohereEmbedderSettings,
        recipe: EmbeddingRecipe,
        *,
        limits: BatchLimits | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Connect later.

        Raises:
            SettingsError: the key is not set.
        """
        self.kind = PROVIDER
        self.limits = limits or cohere_limits(settings)
        self._recipe = recipe
        self._now = now
        self._http = CohereHttp(
            settings.base_url, resolve_secret(settings.api_key), settings.timeout_s, now
        )
        self._datasets = CohereDatasets(
            self._http, "embed-input", options={"keep_fields": KEPT_FIELD}, sleep=sleep
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

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
        name = name_of(job_key, fingerprint, self._recipe)
        dataset_id = self._datasets.ready(requests, name, uploaded_since)
        return self._handle_of(self._create(dataset_id, name), dataset_id)

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.find`."""
        name = name_of(job_key, fingerprint, self._recipe)
        found = [
            job
            for job in self._jobs()
            if job.name == name and moment_of(job.created_at) >= since - CLOCK_SKEW
        ]
        found.sort(key=lambda job: (job.status == "failed", moment_of(job.created_at)))
        return handle_of(found[0]) if found else None

    def state(self, job: JobHandle) -> JobState:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.state`."""
        if job.provider != PROVIDER:
            raise RefusedError(
                f"{job.job_id} is a batch, no embed job",
                code="other-jobs",
                hint="set embedder.jobs_through: batches until it has ended",
            )
        return state_of(self._job(job.job_id))

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.outcomes`."""
        state = self.state(job)
        if not state.terminal:
            raise RefusedError(
                f"job {job.job_id} is {state.raw_status}, it has no results yet",
                code="not-finished",
            )
        if not state.output_file_id:
            return iter(())
        return self._datasets.outcomes(
            state.output_file_id, partial(outcomes_of_part, recipe=self._recipe)
        )

    def cancel(self, job: JobHandle) -> None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.cancel`.

        What it has done is charged for, and lost.
        """
        doing = f"cancelling job {job.job_id}"
        try:
            self._http.post(f"/v1/embed-jobs/{job.job_id}/cancel", None, doing=doing)
        except (RefusedError, TransientError):
            if not self.state(job).terminal:
                raise

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.list_jobs`."""
        jobs = sorted(self._jobs(), key=lambda job: moment_of(job.created_at), reverse=True)
        for job in jobs:
            if moment_of(job.created_at) >= since:
                # A name holds the beginning of the fingerprint only.
                key, _ = parts_of_name(job.name)
                yield ListedJob(handle_of(job), state_of(job), key, "")

    def _handle_of(self, job_id: str, dataset_id: str) -> JobHandle:
        """What finds a new job again; the reply to its creation holds nothing but the id."""
        try:
            return handle_of(self._job(job_id))
        except (TransientError, RefusedError):
            # It exists, whatever became of this question.
            created = datetime.fromtimestamp(self._now(), UTC)
            return JobHandle(PROVIDER, job_id, dataset_id, created)

    def _job(self, job_id: str) -> EmbedJob:
        return self._http.get(
            f"/v1/embed-jobs/{job_id}", EmbedJob, doing=f"asking for job {job_id}"
        )

    def _jobs(self) -> list[EmbedJob]:
        """All of the account: there is neither a filter nor a page."""
        return self._http.get("/v1/embed-jobs", EmbedJobs, doing="listing jobs").embed_jobs

    def _create(self, dataset_id: str, name: str) -> str:
        body = {
            "model": self._recipe.model,
            "dataset_id": dataset_id,
            "input_type": self._recipe.document_input_type,
            "name": name,
            "embedding_types": ["float"],
            "truncate": "END",
        }
        return self._http.create("/v1/embed-jobs", body, JobId).job_id
