"""Cohere's embed jobs: a dataset of texts in, of models of version 3; Avro parts out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from embedmill.batch_provider import JobHandle, JobState
from embedmill.batch_providers.cohere import CohereJobProvider, CohereParts, NamedJob, Pace
from embedmill.batch_providers.cohere_datasets import CohereDatasets
from embedmill.batch_providers.cohere_http import CohereHttp
from embedmill.batch_providers.cohere_limits import KEPT_FIELD, cohere_limits
from embedmill.batch_providers.cohere_results import outcomes_of_part
from embedmill.batch_providers.cohere_wire import (
    PROVIDER,
    EmbedJob,
    EmbedJobs,
    JobId,
    handle_of,
    state_of,
)
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.errors import RefusedError, TransientError
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret

_PATH = "/v1/embed-jobs"
_USUAL = Pace()


class EmbedJobsWay:
    """See :class:`~embedmill.batch_providers.cohere.CohereWay`."""

    kind = PROVIDER
    noun = "embed job"

    def __init__(self, http: CohereHttp, recipe: EmbeddingRecipe, pace: Pace) -> None:
        self._http = http
        self._recipe = recipe
        self._pace = pace

    def create(self, dataset_id: str, name: str) -> JobHandle:
        """Create a job; the reply holds nothing but its id."""
        body = {
            "model": self._recipe.model,
            "dataset_id": dataset_id,
            "input_type": self._recipe.document_input_type,
            "name": name,
            "embedding_types": ["float"],
            "truncate": "END",
        }
        job_id = self._http.create(_PATH, body, JobId).job_id
        try:
            return handle_of(self._job(job_id))
        except (TransientError, RefusedError):
            # It exists, whatever became of this question.
            created = datetime.fromtimestamp(self._pace.now(), UTC)
            return JobHandle(PROVIDER, job_id, dataset_id, created)

    def state(self, job_id: str) -> JobState:
        """Ask how a job stands."""
        return state_of(self._job(job_id))

    def listed(self, since: datetime) -> Iterator[NamedJob]:
        """Of all jobs, those that are not older: the listing has neither filter nor page."""
        for job in self._http.get(_PATH, EmbedJobs, doing="listing jobs").embed_jobs:
            handle = handle_of(job)
            if handle.created_at >= since:
                yield NamedJob(job.name, handle, state_of(job))

    def cancel(self, job_id: str) -> None:
        """Ask for a job to be cancelled."""
        self._http.post(f"{_PATH}/{job_id}/cancel", None, doing=f"cancelling job {job_id}")

    def _job(self, job_id: str) -> EmbedJob:
        return self._http.get(f"{_PATH}/{job_id}", EmbedJob, doing=f"asking for job {job_id}")


def embed_job_provider(
    settings: CohereEmbedderSettings, recipe: EmbeddingRecipe, pace: Pace = _USUAL
) -> CohereJobProvider:
    """Cohere's embed jobs for a recipe.

    Raises:
        SettingsError: the key is not set.
    """
    key = resolve_secret(settings.api_key)
    http = CohereHttp(settings.base_url, key, settings.timeout_s, pace.now)
    return CohereJobProvider(
        CohereParts(
            http,
            EmbedJobsWay(http, recipe, pace),
            CohereDatasets(
                http, "embed-input", options={"keep_fields": KEPT_FIELD}, sleep=pace.sleep
            ),
            partial(outcomes_of_part, recipe=recipe),
            recipe,
            cohere_limits(settings),
        )
    )
