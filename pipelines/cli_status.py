"""The command ``status``: the last run of an index, what is left, and since when it is in line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from embedmill.assembly import workspace_of
from embedmill.job_assembly import OpenJobs, open_jobs
from embedmill.job_summary import unneeded_line, waiting_line
from embedmill.lease import in_use_by
from embedmill.manifest import Manifest
from embedmill.run_report import RunReport, read_reports
from embedmill.settings import Settings
from embedmill.work_left import WorkLeft, work_left
from embedmill.workspace import Workspace
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    FINDINGS,
    OK,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    out,
    print_lines,
    reports_errors,
    seconds,
    settings_from,
    to_type,
)
from pipelines.cli_reading import print_json
from pipelines.summary import fills, summary

MaxAgeOption = Annotated[
    str | None,
    typer.Option(
        "--max-age",
        metavar="TIME",
        help="Exit with 7 where no ingest that began within this time, such as 26h, has brought "
        "the index in line with its source.",
    ),
]


@dataclass(frozen=True, slots=True)
class Standing:
    """How an index stands.

    Attributes:
        runs: the last one that filled it, or has not ended well, and what was run since.
        left: between the layers.
        jobs: at the provider.
        by: who has the index; empty: nobody.
        synced: the last run that brought it in line with its source, dead rows apart.
        age_s: how old the source was read for that; None: it never was.
    """

    runs: Sequence[tuple[str, RunReport | None]]
    left: WorkLeft
    jobs: OpenJobs
    by: str
    synced: RunReport | None
    age_s: float | None

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        run, report = self.runs[-1] if self.runs else ("", None)
        synced = self.synced
        return {
            "run": run,
            "report": report and report.to_json(),
            "left": asdict(self.left),
            "open_jobs": self.jobs.needed,
            "unneeded_jobs": self.jobs.unneeded,
            "in_use_by": self.by,
            "synced": synced and {"run": synced.run, "began": synced.started, "age_s": self.age_s},
        }

    def lines(self) -> Iterator[str]:
        """For a person; there was a run."""
        for run, report in self.runs:
            yield from _ended(run, self.by) if report is None else _told(report)
        if self.jobs.needed:
            yield f"waiting: {waiting_line(self.jobs.needed)}"
        if self.jobs.unneeded:
            yield unneeded_line(self.jobs.unneeded)
        if self.synced is None or self.age_s is None:
            yield "synced: never"
        else:
            since = self.synced.started[:16].replace("T", " ")
            yield f"synced: as of {since} UTC, {_long(self.age_s)} ago, run {self.synced.run}"
        yield f"left: {str(self.left) if self.left else 'no segments between the layers'}"
        well = all(report and report.status in {"succeeded", "partial"} for _, report in self.runs)
        if not self.by and (self.left or not well):
            yield f"  next: run the same ingest again{_how(self.runs[-1][1])}"


@reports_errors
def status(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    max_age: MaxAgeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last run of an index and the work that is left."""
    allowed = None if max_age is None else seconds(max_age, "--max-age")
    settings = settings_from(config, overrides, index)
    standing = _standing(settings)
    late = allowed is not None and (standing.age_s is None or standing.age_s > allowed)
    if as_json:
        print_json({**standing.to_json(), "late": late})
    elif not standing.runs:
        out.say(f"index {settings.index!r} has had no run yet")
    else:
        print_lines(map(to_type, standing.lines()))
    if late and not as_json:
        out.say(f"late: in the last {max_age} no ingest has brought the index in line")
    raise typer.Exit(FINDINGS if late else OK)


def _standing(settings: Settings) -> Standing:
    workspace = workspace_of(settings)
    left, jobs = _left(settings, workspace)
    synced = _last_sync(workspace, settings.index)
    return Standing(
        runs=_last_runs(workspace, settings.index),
        left=left,
        jobs=jobs,
        by=in_use_by(workspace, settings.index),
        synced=synced,
        age_s=_age_s(synced),
    )


def _long(age_s: float) -> str:
    """A time in the unit that fits."""
    if age_s < 7_200:
        return f"{age_s / 60:.0f} min"
    return f"{age_s / 3_600:.0f} h" if age_s < 172_800 else f"{age_s / 86_400:.0f} days"


def _how(last: RunReport | None) -> str:
    """How what is not finished is finished."""
    if last is not None and last.status == "failed" and last.documents.withheld:
        return " with --allow-deletes, if so many documents are gone"
    return "; it goes on where it stopped"


def _last_runs(workspace: Workspace, index: str) -> list[tuple[str, RunReport | None]]:
    """The last run that filled the index, or has not ended well, and what was run since."""
    last = []
    for run, report in read_reports(workspace, index):
        last.append((run, report))
        if report is None or fills(report):
            break
    return last[::-1]


def _last_sync(workspace: Workspace, index: str) -> RunReport | None:
    """The last run that brought the index in line with its source, dead rows apart."""
    for _, report in read_reports(workspace, index):
        if (
            report is not None
            and report.pipeline == "ingest"
            and report.status in {"succeeded", "partial"}
        ):
            return report
    return None


def _age_s(synced: RunReport | None) -> float | None:
    """How old the source was read that the index is in line with; None: it never was."""
    if synced is None:
        return None
    # A clock that is behind the one of the machine that ran it makes no age below nothing.
    began = datetime.fromisoformat(synced.started)
    return max(0.0, round((datetime.now(UTC) - began).total_seconds(), 1))


def _ended(run: str, by: str) -> list[str]:
    """Of a run without a report."""
    if by:
        return [f"run        {run} goes on: {by}"]
    return [f"run        {run} was killed: it has not ended, and nobody works on the index"]


def _told(report: RunReport) -> Iterator[str]:
    """Its summary, without what is told as it is now."""
    return summary(replace(report, open_jobs=(), unneeded_jobs=()))


def _left(settings: Settings, workspace: Workspace) -> tuple[WorkLeft, OpenJobs]:
    """Of the version that an ingest continues."""
    version = Manifest(workspace, settings.index).read().current
    if version is None:
        return WorkLeft(0, 0), OpenJobs()
    return (
        work_left(workspace, settings.index, version),
        open_jobs(settings, version, workspace),
    )
