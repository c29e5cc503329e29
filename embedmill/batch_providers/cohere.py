"""Embedding jobs at Cohere: a dataset in, an embed job, a dataset of Avro parts out.

Without Cohere's own client: it repeats creations that fail, and reads parts of a result without a
look at their status, their size or the number of their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from embedmill.batch_provider import (
    BatchLimits,
    JobHandle,
    JobState,
    ListedJob,
    RequestFile,
    RowOutcome,
)
from embedmill.batch_providers.cohere_http import CohereHttp
from embedmill.batch_providers.cohere_limits import KEPT_FIELD, cohere_limits
from embedmill.batch_providers.cohere_results import outcomes_of_part
from embedmill.batch_providers.cohere_wire import (
    PROVIDER,
    Dataset,
    DatasetReply,
    Datasets,
    EmbedJob,
    EmbedJobs,
    Part,
    handle_of,
    moment_of,
    name_of,
    parts_of_name,
    state_of,
)
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    RefusedError,
    TransientError,
)
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret

# Clocks of two machines may differ by so much when a job or a dataset is looked for.
_CLOCK_SKEW = timedelta(minutes=5)
_PAGE = 100
# A signed address may have expired; a new one is asked for so often.
_PART_TRIES, _PART_PAUSE_S = 4, 1.0


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
        self.limits = limits or cohere_limits(settings)
        self._recipe = recipe
        self._sleep = sleep
        self._now = now
        self._http = CohereHttp(
            settings.base_url, resolve_secret(settings.api_key), settings.timeout_s, now
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
        known = uploaded_since and self._uploaded(name, uploaded_since)
        dataset = self._dataset(known or self._upload(requests, name))
        if dataset.validation_status not in {"validated", "skipped"}:
            raise TransientError(
                f"dataset {dataset.id} is {dataset.validation_status}", code="dataset-not-ready"
            )
        return self._handle_of(self._create(dataset.id, name), dataset.id)

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.find`."""
        name = name_of(job_key, fingerprint, self._recipe)
        found = [
            job
            for job in self._jobs()
            if job.name == name and moment_of(job.created_at) >= since - _CLOCK_SKEW
        ]
        found.sort(key=lambda job: (job.status == "failed", moment_of(job.created_at)))
        return handle_of(found[0]) if found else None

    def state(self, job: JobHandle) -> JobState:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.state`."""
        return state_of(self._job(job.job_id))

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.outcomes`."""
        state = self.state(job)
        if not state.terminal:
            raise RefusedError(
                f"job {job.job_id} is {state.raw_status}, it has no results yet",
                code="not-finished",
            )
        return self._outcomes(state.output_file_id) if state.output_file_id else iter(())

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

    def _dataset(self, dataset_id: str) -> Dataset:
        path = f"/v1/datasets/{dataset_id}"
        dataset = self._http.get(
            path, DatasetReply, doing=f"asking for dataset {dataset_id}"
        ).dataset
        if dataset.validation_status == "failed":
            raise RefusedError(
                f"Cohere refused dataset {dataset_id}: {dataset.validation_error}",
                code="dataset-refused",
            )
        return dataset

    def _uploaded(self, name: str, since: datetime) -> str | None:
        """Id of the newest dataset of this name that is not older, and was not refused."""
        offset = 0
        found: list[Dataset] = []
        while True:
            query = {"limit": str(_PAGE), "offset": str(offset), "datasetType": "embed-input"}
            page = self._http.get(
                "/v1/datasets", Datasets, doing="listing datasets", query=query
            ).datasets
            found += [
                dataset
                for dataset in page
                if dataset.name == name
                and dataset.validation_status != "failed"
                and moment_of(dataset.created_at) >= since - _CLOCK_SKEW
            ]
            if len(page) < _PAGE:
                newest = max(found, key=lambda dataset: dataset.created_at, default=None)
                return newest.id if newest else None
            offset += _PAGE

    def _upload(self, requests: RequestFile, name: str) -> str:
        query = {"name": name, "type": "embed-input", "keep_fields": KEPT_FIELD}
        try:
            return self._http.upload(requests.path, f"{name}.jsonl", query)
        except RateLimitedError:
            raise
        except TransientError as error:
            raise TransientError(str(error), code="upload-lost") from error

    def _create(self, dataset_id: str, name: str) -> str:
        body = {
            "model": self._recipe.model,
            "dataset_id": dataset_id,
            "input_type": self._recipe.document_input_type,
            "name": name,
            "embedding_types": ["float"],
            "truncate": "END",
        }
        try:
            return self._http.create_job(body)
        except RateLimitedError:
            raise
        except TransientError as error:
            if error.code == "not-sent":
                raise
            raise OutcomeUnknownError(
                f"{error}; the job may exist", code="create-unknown"
            ) from error

    def _outcomes(self, dataset_id: str) -> Iterator[RowOutcome]:
        with TemporaryDirectory(prefix="embedmill-cohere-") as folder:
            for position in range(len(self._parts(dataset_id))):
                path = Path(folder) / f"part-{position:05d}.avro"
                rows = self._downloaded(dataset_id, position, path)
                yield from outcomes_of_part(path, rows, self._recipe)
                path.unlink()

    def _parts(self, dataset_id: str) -> list[Part]:
        try:
            parts = self._dataset(dataset_id).dataset_parts or []
        except RefusedError as error:
            raise RefusedError(
                f"{error}; Cohere keeps results for 30 days", code="results-gone"
            ) from error
        return sorted(parts, key=lambda part: part.index)

    def _downloaded(self, dataset_id: str, position: int, path: Path) -> int | None:
        """Fetch one part; its rows, as Cohere counts them. Each try has a new signed address."""
        for tries_left in reversed(range(_PART_TRIES)):
            part = self._parts(dataset_id)[position]
            try:
                self._http.download(part.url, path, part.size_bytes)
            except TransientError as error:
                if not tries_left:
                    raise TransientError(
                        f"part {position} of dataset {dataset_id}: {error}",
                        code="truncated-results",
                    ) from error
                self._sleep(_PART_PAUSE_S)
            else:
                return part.num_rows
        raise AssertionError("unreachable")
