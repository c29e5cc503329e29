"""OpenAI's files and batches as they come over the wire, and what they mean to us.

The SDK's models check nothing; these do. Fields that are not named here are let be, and all that a
compatible server may leave out has a default.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from embedmill.batch_provider import (
    FILE_TOO_LARGE,
    NO_CREDIT,
    QUEUE_FULL,
    JobCounts,
    JobError,
    JobHandle,
    JobState,
    JobStatus,
    ListedJob,
)
from embedmill.openai_replies import NO_MONEY, TOKEN_LIMIT, tells_of_size
from embedmill.redaction import redacted

# Names in a job's metadata: at most 16 pairs, keys of 64 and values of 512 characters.
JOB_KEY, FINGERPRINT = "embedmill_job_key", "embedmill_fingerprint"

# What servers call a job whose file they would take in parts, as far as it is known.
_TOO_LARGE = frozenset({"too_many_tasks", "file_too_large"})

# ``cancelling`` takes up to ten minutes and ends in ``cancelled``.
_STATUSES: dict[str, JobStatus] = {
    "validating": "pending",
    "in_progress": "running",
    "finalizing": "finalizing",
    "cancelling": "finalizing",
    "completed": "succeeded",
    "expired": "expired",
    "cancelled": "cancelled",
    "failed": "failed",
}


class WireFile(msgspec.Struct):
    """A file; ``bytes`` is None where the server does not say."""

    id: str
    filename: str = ""
    bytes: int | None = None
    created_at: int | str = 0
    purpose: str = ""


class WireCounts(msgspec.Struct):
    """Of requests."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class WireError(msgspec.Struct):
    """Of a job as a whole."""

    code: str | None = None
    message: str | None = None
    line: int | None = None


class WireUsage(msgspec.Struct):
    """Of the rows that succeeded; older replies have other names."""

    total_tokens: int | None = None
    input_tokens: int | None = None
    prompt_tokens: int | None = None


class WireBatch(msgspec.Struct):
    """A job."""

    id: str
    status: str
    input_file_id: str | None = None
    created_at: int | str = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: WireCounts | None = None
    # A list of errors, in an envelope or without.
    errors: Any = None
    usage: WireUsage | None = None
    metadata: dict[str, Any] | None = None


class WireFilePage(msgspec.Struct):
    """Part of a listing of files."""

    data: list[WireFile]
    has_more: bool = False


class WireBatchPage(msgspec.Struct):
    """Part of a listing of jobs, newest first."""

    data: list[WireBatch]
    has_more: bool = False


def moment_of(value: int | str) -> datetime:
    """A time of the wire: seconds since the epoch, or RFC 3339 from compatible servers.

    Raises:
        ValueError: neither.
    """
    if isinstance(value, int):
        return datetime.fromtimestamp(value, UTC)
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def handle_of(batch: WireBatch, provider: str) -> JobHandle:
    """What finds the job again."""
    return JobHandle(provider, batch.id, batch.input_file_id or "", moment_of(batch.created_at))


def state_of(batch: WireBatch) -> JobState:
    """How the job stands."""
    counts = batch.request_counts or WireCounts()
    usage = batch.usage or WireUsage()
    tokens = (usage.total_tokens, usage.input_tokens, usage.prompt_tokens)
    return JobState(
        status=_STATUSES.get(batch.status, "unknown"),
        raw_status=batch.status,
        counts=JobCounts(counts.total, counts.completed, counts.failed),
        # Some servers say "" for a file that does not exist.
        output_file_id=batch.output_file_id or None,
        error_file_id=batch.error_file_id or None,
        errors=_errors_of(batch),
        tokens=next((count for count in tokens if count), None),
    )


def listed_of(batch: WireBatch, provider: str) -> ListedJob:
    """The job in a listing; key and fingerprint are empty when it is not one of ours."""
    metadata = batch.metadata or {}
    return ListedJob(
        handle_of(batch, provider),
        state_of(batch),
        str(metadata.get(JOB_KEY) or ""),
        str(metadata.get(FINGERPRINT) or ""),
    )


def _errors_of(batch: WireBatch) -> tuple[JobError, ...]:
    said = batch.errors.get("data") if isinstance(batch.errors, dict) else batch.errors
    errors = msgspec.convert(said, list[WireError]) if isinstance(said, list) else []
    return tuple(
        JobError(_code_of(error), redacted(error.message or ""), error.line) for error in errors
    )


def _code_of(error: WireError) -> str:
    if error.code == TOKEN_LIMIT:
        return QUEUE_FULL
    if error.code in NO_MONEY:
        return NO_CREDIT
    if error.code in _TOO_LARGE or (error.line is None and tells_of_size(error.message or "")):
        return FILE_TOO_LARGE
    return error.code or "unknown"
