"""Cohere's datasets, embed jobs and batches as they come over the wire, and what they mean."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from embedmill.batch_provider import (
    FILE_TOO_LARGE,
    JobCounts,
    JobError,
    JobHandle,
    JobState,
    JobStatus,
)
from embedmill.openai_replies import tells_of_size
from embedmill.recipe import EmbeddingRecipe
from embedmill.redaction import redacted

PROVIDER = "cohere"
# ``cancelling`` ends in ``cancelled``.
_STATUSES: dict[str, JobStatus] = {
    "processing": "running",
    "cancelling": "finalizing",
    "complete": "succeeded",
    "cancelled": "cancelled",
    "failed": "failed",
}
BATCHES = "cohere_batches"
_BATCH_STATUSES: dict[str, JobStatus] = {
    "BATCH_STATUS_QUEUED": "pending",
    "BATCH_STATUS_IN_PROGRESS": "running",
    "BATCH_STATUS_CANCELING": "finalizing",
    "BATCH_STATUS_COMPLETED": "succeeded",
    "BATCH_STATUS_FAILED": "failed",
    "BATCH_STATUS_CANCELED": "cancelled",
}


class Part(msgspec.Struct):
    """Part of a dataset; its address is signed, and may expire."""

    url: str
    index: int = 0
    size_bytes: int | None = None
    num_rows: int | None = None


class Dataset(msgspec.Struct):
    """A dataset; names are not unique."""

    id: str
    name: str = ""
    created_at: str = ""
    validation_status: str = "unknown"
    validation_error: str | None = None
    dataset_parts: list[Part] | None = None


class DatasetReply(msgspec.Struct):
    """One dataset."""

    dataset: Dataset


class Datasets(msgspec.Struct):
    """A listing."""

    datasets: list[Dataset] = []


class Billed(msgspec.Struct):
    """What was charged for."""

    input_tokens: float | None = None


class Meta(msgspec.Struct):
    """About a job."""

    billed_units: Billed | None = None


class EmbedJob(msgspec.Struct):
    """A job."""

    job_id: str
    status: str
    name: str | None = None
    created_at: str = ""
    input_dataset_id: str | None = None
    output_dataset_id: str | None = None
    meta: Meta | None = None


class JobId(msgspec.Struct):
    """The reply to a creation."""

    job_id: str


class EmbedJobs(msgspec.Struct):
    """A listing: all of them."""

    embed_jobs: list[EmbedJob] = []


class Batch(msgspec.Struct):
    """A batch; counts of tokens come as texts."""

    id: str
    status: str = ""
    name: str = ""
    created_at: str = ""
    input_dataset_id: str = ""
    output_dataset_id: str | None = None
    num_records: int | str | None = None
    num_successful_records: int | str | None = None
    num_failed_records: int | str | None = None
    input_tokens: int | str | None = None
    status_reason: str | None = None


class BatchReply(msgspec.Struct):
    """One batch."""

    batch: Batch


class BatchPage(msgspec.Struct):
    """Part of a listing."""

    batches: list[Batch] = []
    next_page_token: str | None = None


def name_of(job_key: str, fingerprint: str, recipe: EmbeddingRecipe) -> str:
    """Of a job and its dataset; shorter than the 50 characters that Cohere allows.

    The recipe is part of it: equal files may be meant for two models.
    """
    return f"em-{job_key[:12]}-{recipe.fingerprint[:12]}-{fingerprint[:16]}"


def parts_of_name(name: str | None) -> tuple[str, str]:
    """Job key and beginning of the fingerprint; both empty when it is not one of ours."""
    parts = (name or "").split("-")
    return (parts[1], parts[3]) if len(parts) == 4 and parts[0] == "em" else ("", "")


def moment_of(value: str) -> datetime:
    """A time of the wire.

    Raises:
        ValueError: it is none.
    """
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def handle_of(job: EmbedJob) -> JobHandle:
    """What finds the job again."""
    return JobHandle(PROVIDER, job.job_id, job.input_dataset_id or "", moment_of(job.created_at))


def state_of(job: EmbedJob) -> JobState:
    """How the job stands."""
    billed = job.meta.billed_units if job.meta else None
    tokens = billed.input_tokens if billed else None
    return JobState(
        status=_STATUSES.get(job.status, "unknown"),
        raw_status=job.status,
        output_file_id=job.output_dataset_id or None,
        tokens=None if tokens is None else int(tokens),
    )


def handle_of_batch(batch: Batch) -> JobHandle:
    """What finds the batch again."""
    return JobHandle(BATCHES, batch.id, batch.input_dataset_id, moment_of(batch.created_at))


def state_of_batch(batch: Batch) -> JobState:
    """How the batch stands."""
    status = _BATCH_STATUSES.get(batch.status, "unknown")
    reason = redacted(batch.status_reason or "no reason given")
    return JobState(
        status=status,
        raw_status=batch.status,
        counts=JobCounts(
            _count(batch.num_records) or 0,
            _count(batch.num_successful_records) or 0,
            _count(batch.num_failed_records) or 0,
        ),
        output_file_id=batch.output_dataset_id or None,
        errors=(JobError(_code_of(reason), reason),) if status == "failed" else (),
        tokens=_count(batch.input_tokens) or None,
    )


def _code_of(reason: str) -> str:
    return FILE_TOO_LARGE if tells_of_size(reason) else "batch-failed"


def _count(value: int | str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None
