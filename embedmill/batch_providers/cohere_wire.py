"""Cohere's datasets and embed jobs as they come over the wire, and what they mean to us."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from embedmill.batch_provider import JobHandle, JobState, JobStatus
from embedmill.recipe import EmbeddingRecipe

PROVIDER = "cohere"
# ``cancelling`` ends in ``cancelled``.
_STATUSES: dict[str, JobStatus] = {
    "processing": "running",
    "cancelling": "finalizing",
    "complete": "succeeded",
    "cancelled": "cancelled",
    "failed": "failed",
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


class EmbedJobs(msgspec.Struct):
    """A listing: all of them."""

    embed_jobs: list[EmbedJob] = []


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
