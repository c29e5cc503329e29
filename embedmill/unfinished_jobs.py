"""Embedding jobs without an outcome: those whose rows a version still lacks, and the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embedmill.job_records import JobRecord, JobRecords
from embedmill.job_summary import NAMED
from embedmill.plain_numbers import agreed, number_of
from embedmill.segment import SegmentKey

_DOUBT = (
    " What was perhaps never sent is looked for until the provider's listing can be believed, a "
    "minute or two: if it is not there, its rows are embedded in realtime as well."
)


@dataclass(frozen=True, slots=True)
class UnfinishedJobs:
    """What a run must not buy again, whatever it embeds with.

    Attributes:
        jobs: without an outcome, that have rows of segments without vectors; oldest first.
        kept: such segments of which ended jobs have brought some rows.
        unneeded: jobs without an outcome whose segments all have vectors; oldest first.
    """

    jobs: Sequence[JobRecord] = ()
    kept: int = 0
    unneeded: Sequence[JobRecord] = ()

    def __bool__(self) -> bool:
        """Whether rows were bought that are not there yet."""
        return bool(self.jobs or self.kept)

    def notice(self, *, waits: bool) -> str:
        """One line for whoever starts a run whose settings ask for no jobs, while some are open.

        Args:
            waits: whether that run waits for the jobs.
        """
        count = len(self.jobs)
        rows = sum(record.intent.inputs for record in self.jobs)
        named = [_named(record) for record in self.jobs[:NAMED]]
        if count > NAMED:
            named.append(f"{count - NAMED:,} more")
        key = self.jobs[0].intent.key if count == 1 else "KEY"
        unsent = any(record.handle is None for record in self.jobs)
        doubt = _DOUBT if unsent else ""
        goes_on = "waits for them" if waits else "leaves them to a later one"
        return (
            f"{number_of(count, 'embedding job')} with {number_of(rows, 'row')} "
            f"{agreed(count, 'is', 'are')} still open ({'; '.join(named)}): this run does not pay "
            f"for these rows again, {goes_on}, and embeds all others in realtime.{doubt} Not to "
            f"wait for a job: embedmill jobs cancel {key} -c SETTINGS, then the same command, "
            "which embeds the rest in realtime (docs/embedding-jobs.md: where what a cancelled "
            "job did is kept)"
        )


def _named(record: JobRecord) -> str:
    intent = record.intent
    when = f"{intent.created:%Y-%m-%d %H:%M} UTC"
    if record.handle is None:
        return f"{intent.key}, of {when}, perhaps never sent"
    return f"{intent.key}, submitted {when} as {record.handle.job_id}"


def unfinished_jobs(records: JobRecords, lacks: Callable[[SegmentKey], bool]) -> UnfinishedJobs:
    """What jobs have brought, or will, for segments without vectors.

    Args:
        records: of the version's jobs.
        lacks: whether a segment is there and has no vectors.
    """
    wanted: list[JobRecord] = []
    unneeded: list[JobRecord] = []
    for record in sorted(records.open(), key=lambda record: record.intent.created):
        needed = any(map(lacks, record.intent.rows()))
        (wanted if needed else unneeded).append(record)
    return UnfinishedJobs(wanted, sum(map(lacks, records.kept_rows())), unneeded)
