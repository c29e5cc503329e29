"""Embedding jobs through Cohere's batches: a dataset of requests in, of any model.

Cohere documents how a batch is created, asked about and cancelled, but not what its files hold.
That is known from its client (the kinds of datasets) and from a public program that uses it: a
line is ``{"custom_id", "body"}``, with the body of an embed request without its model; a row of
the result is ``{"custom_id", "error", "body"}``, with the body of the reply. Hence a setting of its
own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
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
from embedmill.batch_providers.cohere_limits import batch_limits
from embedmill.batch_providers.cohere_results import outcomes_of_batch_part
from embedmill.batch_providers.cohere_wire import (
    BATCHES,
    Batch,
    BatchPage,
    BatchReply,
    handle_of_batch,
    moment_of,
    name_of,
    parts_of_name,
    state_of_batch,
)
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.errors import RefusedError, TransientError
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret

_PATH = "/v2/batches"
_PAGE = "1000"


class CohereBatchProvider:
    """See :class:`~embedmill.batch_provider.BatchEmbeddingProvider`.

    Batches and datasets have no metadata: their names carry what finds them again.
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
        self.kind = BATCHES
        self.limits = limits or batch_limits(settings)
        self._recipe = recipe
        self._http = CohereHttp(
            settings.base_url, resolve_secret(settings.api_key), settings.timeout_s, now
        )
        self._datasets = CohereDatasets(self._http, "batch-embed-v2-input", sleep=sleep)

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
        body = {"name": name, "input_dataset_id": dataset_id, "model": self._recipe.model}
        return handle_of_batch(self._http.create(_PATH, body, BatchReply).batch)

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.find`."""
        name = name_of(job_key, fingerprint, self._recipe)
        found = [batch for batch in self._since(since - CLOCK_SKEW) if batch.name == name]
        found.sort(
            key=lambda batch: (
                state_of_batch(batch).status == "failed",
                moment_of(batch.created_at),
            )
        )
        return handle_of_batch(found[0]) if found else None

    def state(self, job: JobHandle) -> JobState:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.state`."""
        if job.provider != BATCHES:
            raise RefusedError(
                f"{job.job_id} is an embed job, no batch",
                code="other-jobs",
                hint="set embedder.jobs_through: embed_jobs until it has ended",
            )
        path, doing = f"{_PATH}/{job.job_id}", f"asking for batch {job.job_id}"
        return state_of_batch(self._http.get(path, BatchReply, doing=doing).batch)

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.outcomes`."""
        state = self.state(job)
        if not state.terminal:
            raise RefusedError(
                f"batch {job.job_id} is {state.raw_status}, it has no results yet",
                code="not-finished",
            )
        if not state.output_file_id:
            return iter(())
        read = partial(outcomes_of_batch_part, recipe=self._recipe)
        return self._datasets.outcomes(state.output_file_id, read)

    def cancel(self, job: JobHandle) -> None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.cancel`."""
        doing = f"cancelling batch {job.job_id}"
        try:
            self._http.post(f"{_PATH}/{job.job_id}:cancel", None, doing=doing)
        except (RefusedError, TransientError):
            if not self.state(job).terminal:
                raise

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.list_jobs`."""
        batches = sorted(
            self._since(since), key=lambda batch: moment_of(batch.created_at), reverse=True
        )
        for batch in batches:
            # A name holds the beginning of the fingerprint only.
            key, _ = parts_of_name(batch.name)
            yield ListedJob(handle_of_batch(batch), state_of_batch(batch), key, "")

    def _since(self, since: datetime) -> Iterator[Batch]:
        """All batches that are not older; in which order they are listed is not stated."""
        query = {"page_size": _PAGE}
        while True:
            page = self._http.get(_PATH, BatchPage, doing="listing batches", query=query)
            yield from (batch for batch in page.batches if moment_of(batch.created_at) >= since)
            if not page.next_page_token:
                return
            query["page_token"] = page.next_page_token
