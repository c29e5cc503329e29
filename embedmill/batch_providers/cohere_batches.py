"""Embedding jobs through Cohere's batches: a dataset of requests in, of any model.

Cohere documents how a batch is created, asked about and cancelled, but not what its files hold.
That is known from its client (the kinds of datasets) and from a public program that uses it: a
line is ``{"custom_id", "body"}``, with the body of an embed request without its model; a row of
the result is ``{"custom_id", "error", "body"}``, with the body of the reply. Hence a setting of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from embedmill.batch_provider import JobHandle, JobState
from embedmill.batch_providers.cohere import CohereJobProvider, CohereParts, NamedJob, Pace
from embedmill.batch_providers.cohere_datasets import CohereDatasets
from embedmill.batch_providers.cohere_http import CohereHttp
from embedmill.batch_providers.cohere_limits import batch_limits
from embedmill.batch_providers.cohere_results import outcomes_of_batch_part
from embedmill.batch_providers.cohere_wire import (
    BATCHES,
    BatchPage,
    BatchReply,
    handle_of_batch,
    state_of_batch,
)
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret

_PATH = "/v2/batches"
_PAGE = "1000"
_USUAL = Pace()


class BatchesWay:
    """See :class:`~embedmill.batch_providers.cohere.CohereWay`."""

    kind = BATCHES
    noun = "batch"

    def __init__(self, http: CohereHttp, model: str) -> None:
        self._http = http
        self._model = model

    def create(self, dataset_id: str, name: str) -> JobHandle:
        """Create a batch."""
        body = {"name": name, "input_dataset_id": dataset_id, "model": self._model}
        return handle_of_batch(self._http.create(_PATH, body, BatchReply).batch)

    def state(self, job_id: str) -> JobState:
        """Ask how a batch stands."""
        path, doing = f"{_PATH}/{job_id}", f"asking for batch {job_id}"
        return state_of_batch(self._http.get(path, BatchReply, doing=doing).batch)

    def listed(self, since: datetime) -> Iterator[NamedJob]:
        """All batches that are not older; in which order they are listed is not stated."""
        query = {"page_size": _PAGE}
        while True:
            page = self._http.get(_PATH, BatchPage, doing="listing batches", query=query)
            for batch in page.batches:
                handle = handle_of_batch(batch)
                if handle.created_at >= since:
                    yield NamedJob(batch.name, handle, state_of_batch(batch))
            if not page.next_page_token:
                return
            query["page_token"] = page.next_page_token

    def cancel(self, job_id: str) -> None:
        """Ask for a batch to be cancelled."""
        self._http.post(f"{_PATH}/{job_id}:cancel", None, doing=f"cancelling batch {job_id}")


def batch_provider(
    settings: CohereEmbedderSettings, recipe: EmbeddingRecipe, pace: Pace = _USUAL
) -> CohereJobProvider:
    """Cohere's batches for a recipe.

    Raises:
        SettingsError: the key is not set.
    """
    key = resolve_secret(settings.api_key)
    http = CohereHttp(settings.base_url, key, settings.timeout_s, pace.now)
    return CohereJobProvider(
        CohereParts(
            http,
            BatchesWay(http, recipe.model),
            CohereDatasets(http, "batch-embed-v2-input", sleep=pace.sleep),
            partial(outcomes_of_batch_part, recipe=recipe),
            recipe,
            batch_limits(settings),
        )
    )
