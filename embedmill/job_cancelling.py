"""Ending one embedding job by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from embedmill.batch_provider import BatchEmbeddingProvider, JobHandle
from embedmill.embedding_job import JobPolicy, JobProgress, after_not_found, next_step
from embedmill.errors import RefusedError, TransientError
from embedmill.job_records import UNNEEDED, JobOutcome, JobRecord, JobRecords


def cancel_job(
    record: JobRecord,
    records: JobRecords,
    provider: BatchEmbeddingProvider,
    *,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None],
    needed: bool = True,
) -> JobHandle | None:
    """Have a job cancelled; give up an intent that never became one.

    A job that is needed is collected by the next run, whatever it did; one that is not is closed.

    An intent without a known job is looked for until the provider's listing can be believed: the
    process that wrote it may have submitted it a moment ago. Whoever calls holds the lease, so that
    nobody submits it meanwhile.

    Args:
        record: of the job.
        records: where its end is written.
        provider: of the job.
        clock: UTC.
        sleep: between two looks.
        needed: whether a row of it has no vector yet.

    Returns:
        The job that the provider was asked to cancel; None: there never was one, the rows of the
        intent are open again.

    Raises:
        RefusedError: it has ended, was sent through another kind of provider, or the provider does
            not know it.
        TransientError: the provider does not answer; nothing was given up.
    """
    intent = record.intent
    _require_open(record)
    record.require_provider(provider.kind)
    handle = record.handle
    if handle is None:
        handle = _found(record, provider, clock, sleep)
        if handle is not None:
            records.submitted(intent.key, handle)
    if handle is not None:
        try:
            provider.cancel(handle)
        except RefusedError as error:
            raise RefusedError(
                f"embedding job {intent.key} was not cancelled: {error}",
                code=error.code,
                hint="set embedder.api_key and embedder.base_url as they were when it was sent. "
                f"Where nobody can reach it any more, embedmill jobs cancel {intent.key} --give-up "
                "-c SETTINGS lets it be: its rows are embedded, and paid for, again",
            ) from error
        if not needed:
            note = "cancelled by hand, for its rows have vectors already"
            tokens = _charged(provider, handle)
            _close(record, records, clock(), note, status=UNNEEDED, tokens=tokens)
        return handle
    _close(record, records, clock(), "given up by hand before it was submitted", tokens=0)
    return None


def give_up_job(
    record: JobRecord,
    records: JobRecords,
    *,
    clock: Callable[[], datetime],
    needed: bool = True,
) -> None:
    """Let a job be that nobody can reach any more, without asking the provider.

    Whatever it did is lost: its rows are open again, and are paid for again.

    Args:
        record: of the job.
        records: where its end is written.
        clock: UTC.
        needed: whether a row of it has no vector yet.

    Raises:
        RefusedError: it has ended.
    """
    _require_open(record)
    note = "given up by hand; what it did was never collected"
    _close(record, records, clock(), note, status="abandoned" if needed else UNNEEDED)


def _charged(provider: BatchEmbeddingProvider, job: JobHandle) -> int | None:
    """Tokens of a job; None: it has not ended, or the provider does not say."""
    try:
        state = provider.state(job)
    except (TransientError, RefusedError):
        return None
    return state.tokens if state.terminal else None


def _require_open(record: JobRecord) -> None:
    if record.outcome is not None:
        raise RefusedError(f"embedding job {record.intent.key} has ended: {record.outcome.status}")


def _close(
    record: JobRecord,
    records: JobRecords,
    now: datetime,
    note: str,
    *,
    status: str = "abandoned",
    tokens: int | None = None,
) -> None:
    outcome = JobOutcome(
        status=status,
        tokens=tokens,
        ended=now.isoformat(),
        counted=False,
        again={} if status == UNNEEDED else record.intent.rows(),
        note=note,
    )
    records.collected(record.intent.key, outcome)


def _found(
    record: JobRecord,
    provider: BatchEmbeddingProvider,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None],
) -> JobHandle | None:
    intent, policy = record.intent, JobPolicy()
    # Whatever was done for it was done before now.
    job = JobProgress(intent.key, intent.created, sure=False, last_try=clock())
    while (step := next_step(job, clock(), None, policy)) != "submit":
        if step == "wait" and job.not_before is not None:
            sleep((job.not_before - clock()).total_seconds())
            continue
        looked = clock()
        handle = provider.find(
            job_key=intent.key, fingerprint=intent.fingerprint, since=intent.created
        )
        if handle is not None:
            return handle
        job = after_not_found(job, looked, policy)
    return None
