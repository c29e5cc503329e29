"""What a person or an auditor wants to know of an embedding job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from embedmill.job_records import JobRecord
from embedmill.plain_numbers import agreed, number_of

# Jobs that a line names; further ones are counted.
NAMED = 3


def status_of(record: JobRecord) -> str:
    """Where a job is in its life."""
    if record.outcome is not None:
        return record.outcome.status
    return "submitted" if record.handle is not None else "intended"


def summary_of(record: JobRecord, dollars_per_million: float | None) -> dict[str, Any]:
    """One job as JSON types; ``dollars`` is None where the price or the bill is not known."""
    intent, outcome = record.intent, record.outcome
    tokens = outcome.tokens if outcome is not None else None
    dollars = None
    if tokens is not None and dollars_per_million is not None:
        dollars = round(tokens / 1e6 * dollars_per_million, 6)
    return {
        "key": intent.key,
        "status": status_of(record),
        "provider": record.handle and record.handle.provider,
        "provider_job": record.handle and record.handle.job_id,
        "created": intent.created.isoformat(),
        "ended": outcome and outcome.ended,
        "rows": intent.inputs,
        "requests": len(intent.requests),
        "tokens_counted": intent.tokens,
        "tokens_charged": tokens,
        "dollars": dollars,
        "buckets": outcome and asdict(outcome.buckets),
        "note": outcome and outcome.note,
    }


def summaries(
    records: Iterable[JobRecord], dollars_per_million: float | None
) -> Sequence[dict[str, Any]]:
    """Jobs that have ended, oldest first."""
    ended = [record for record in records if record.outcome is not None]
    ended.sort(key=lambda record: record.intent.created)
    return [summary_of(record, dollars_per_million) for record in ended]


def open_summaries(
    records: Iterable[JobRecord], dollars_per_million: float | None
) -> Sequence[dict[str, Any]]:
    """Jobs that have not ended; ``dollars`` is what they may still be charged for."""
    return [
        {
            **summary_of(record, dollars_per_million),
            "dollars": None
            if dollars_per_million is None
            else round(record.intent.tokens / 1e6 * dollars_per_million, 6),
        }
        for record in records
    ]


def waiting_line(jobs: Sequence[dict[str, Any]]) -> str:
    """What a person wants to know of open jobs whose rows are waited for; there is at least one."""
    count, doubtful = len(jobs), sum(job["provider_job"] is None for job in jobs)
    rows, tokens = (sum(job[key] for job in jobs) for key in ("rows", "tokens_counted"))
    since = min(job["created"] for job in jobs)[:16].replace("T", " ")
    unseen = f", {doubtful:,} of them perhaps never sent" if doubtful else ""
    return (
        f"{number_of(count, 'embedding job')} at the provider since {since} UTC{unseen}: "
        f"{number_of(rows, 'row')}, about {number_of(tokens, 'token')} "
        "(see: embedmill jobs list -c SETTINGS)"
    )


def unneeded_line(jobs: Sequence[dict[str, Any]]) -> str:
    """What a person should know and type about open jobs whose rows have vectors."""
    count = len(jobs)
    tokens = sum(job["tokens_counted"] for job in jobs)
    dollars = [job["dollars"] for job in jobs]
    cost = "an unknown price" if None in dollars else f"${sum(dollars):.4f}"
    named = [f"{job['key']} ({job['provider_job'] or 'never seen there'})" for job in jobs[:NAMED]]
    if count > NAMED:
        named.append(f"{count - NAMED:,} more")
    key = jobs[0]["key"] if count == 1 else "KEY"
    return (
        f"{number_of(count, 'embedding job')} {agreed(count, 'is', 'are')} open though all rows "
        f"of {agreed(count, 'it', 'them')} have vectors: {', '.join(named)}. Nothing waits for "
        f"{agreed(count, 'it', 'them')}, and nothing will be fetched, but the provider may charge "
        f"for about {number_of(tokens, 'token')}, {cost}: embedmill jobs cancel {key} -c SETTINGS"
    )


def bill(jobs: Iterable[dict[str, Any]]) -> str:
    """What some jobs cost together, for a person; what is not known is said to be so."""
    listed = list(jobs)
    tokens = [job["tokens_charged"] for job in listed]
    dollars = [job["dollars"] for job in listed]
    counted = "unknown tokens" if None in tokens else number_of(sum(tokens), "token")
    cost = "unknown" if None in dollars else f"${sum(dollars):.4f}"
    return f"{number_of(len(listed), 'job')}, {counted}, cost {cost}"
