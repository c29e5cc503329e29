"""Embedding jobs whose rows a version still lacks: bought, or about to be, and not there yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embedmill.job_records import JobRecord, JobRecords
from embedmill.job_summary import status_of
from embedmill.plain_numbers import agreed, number_of
from embedmill.segment import SegmentKey

# Jobs that a line names; further ones are counted.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class UnfinishedJobs:
    """What a run must not buy again, whatever it embeds with.

    Attributes:
        jobs: without an outcome, that have rows of segments without vectors; oldest first.
        kept: such segments of which ended jobs have brought some rows.
    """

    jobs: Sequence[JobRecord]
    kept: int

    def __bool__(self) -> bool:
        """Whether there is anything of the kind."""
        return bool(self.jobs or self.kept)

    def notice(self, *, waits: bool) -> str:
        """One line for whoever starts a run whose settings ask for no jobs, while some are open.

        Args:
            waits: whether that run waits for the jobs.
        """
        count = len(self.jobs)
        rows = sum(record.intent.inputs for record in self.jobs)
        named = [_named(record) for record in self.jobs[:_NAMED]]
        if count > _NAMED:
            named.append(f"{count - _NAMED:,} more")
        key = self.jobs[0].intent.key if count == 1 else "KEY"
        goes_on = "waits for them" if waits else "leaves them to a later one"
        return (
            f"{number_of(count, 'embedding job')} with {number_of(rows, 'row')} "
            f"{agreed(count, 'is', 'are')} still open ({'; '.join(named)}): this run does not pay "
            f"for these rows again, {goes_on}, and embeds all others in realtime. Not to wait for "
            f"a job: embedmill jobs cancel {key} -c SETTINGS, then the same command, which embeds "
            "the rest in realtime (docs/embedding-jobs.md: where what a cancelled job did is kept)"
        )


def _named(record: JobRecord) -> str:
    intent = record.intent
    place = f" as {record.handle.job_id}" if record.handle else ""
    return f"{intent.key}, {status_of(record)} {intent.created:%Y-%m-%d %H:%M} UTC{place}"


def unfinished_jobs(records: JobRecords, lacks: Callable[[SegmentKey], bool]) -> UnfinishedJobs:
    """What jobs have brought, or will, for segments without vectors.

    Args:
        records: of the version's jobs.
        lacks: whether a segment is there and has no vectors.
    """
    wanted = [record for record in records.open() if any(map(lacks, record.intent.rows()))]
    return UnfinishedJobs(
        sorted(wanted, key=lambda record: record.intent.created),
        sum(map(lacks, records.kept_rows())),
    )
