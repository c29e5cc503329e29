"""The report of a run: counts that add up, or a run that failed."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

from embedmill.counts import ChunkCounts, DocumentCounts, RateUse, RecordCounts, WriteCounts
from embedmill.errors import AlreadyExistsError, EmbedmillError
from embedmill.plain_numbers import number_of
from embedmill.redaction import redacted
from embedmill.sealed_json import require_known, sealed, unsealed
from embedmill.workspace import Workspace

Pipeline = Literal[
    "ingest",
    "replay",
    "compact",
    "audit",
    "reembed",
    "publish",
    "rollback",
    "prune",
    "copy",
]
RunStatus = Literal["succeeded", "partial", "failed", "interrupted", "waiting"]
_FORM = "%Y%m%dT%H%M%SZ"
_ID = re.compile(r"\d{8}T\d{6}Z")
# What a run says of itself and nobody else needs.
REPORT_FILES = re.compile(r"(started|report|event|told-[0-9a-f]+)\.json")


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did.

    Attributes:
        run: its id.
        index: that it worked on.
        version: index version (``v1``).
        pipeline: what was run.
        executor: ``inline`` or ``ray``.
        status: ``succeeded``; ``partial`` when rows died, or still lack a record since an earlier
            run; ``failed``; ``interrupted``; ``waiting`` for embedding jobs that go on at the
            provider.
        started: UTC, ISO 8601.
        seconds: how long it took, start of the workers included.
        documents: of the scan; of a run that ended early also those that it had not committed.
        chunks: that got vectors in this run, those left over from an earlier run included.
        records: that the store confirmed in this run.
        rate: what finished calls used of a provider's limits for realtime requests.
        writes: what that took, for stores over the network.
        live_documents: in the index now; -1 when the run ended before they were counted.
        live_records: that should be in the collection now; -1 likewise.
        stored_records: that the store counts; -1 likewise.
        lacking_records: chunks of these documents that have no record, whichever run failed to
            make it; -1 likewise, and of runs that are no ingest or replay.
        read_bytes: of the source that the run has read, unpacked; of a cluster whose workers died
            what was read twice counts twice.
        error: one line, when the run failed.
        jobs: embedding jobs that ended in this run (see ``embedmill.job_summary``).
        open_jobs: that were at the provider when it ended, and are waited for.
        unneeded_jobs: that are open after it although all their rows have vectors.
        gates: what the first version of the index showed, as ``GateResult.to_json`` writes it.
    """

    run: str
    index: str
    version: str
    pipeline: Pipeline
    executor: str
    status: RunStatus
    started: str
    seconds: float
    documents: DocumentCounts = field(default_factory=DocumentCounts)
    chunks: ChunkCounts = field(default_factory=ChunkCounts)
    records: RecordCounts = field(default_factory=RecordCounts)
    rate: RateUse = field(default_factory=RateUse)
    writes: WriteCounts = field(default_factory=WriteCounts)
    live_documents: int = -1
    live_records: int = -1
    stored_records: int = -1
    lacking_records: int = -1
    read_bytes: int = 0
    error: str = ""
    jobs: tuple[dict[str, Any], ...] = ()
    open_jobs: tuple[dict[str, Any], ...] = ()
    unneeded_jobs: tuple[dict[str, Any], ...] = ()
    gates: tuple[dict[str, Any], ...] = ()

    @property
    def dead_letters(self) -> int:
        """Rows that died in this run."""
        return self.documents.dead + self.chunks.dead + self.records.rejected

    @property
    def complete(self) -> bool:
        """Whether no row died in this run, and none of an earlier one lacks its record."""
        return not self.dead_letters and self.lacking_records <= 0

    @property
    def changed_anything(self) -> bool:
        """Whether the run wrote to the index."""
        return self.records != RecordCounts() or self.chunks.chunks > 0

    def problems(self) -> list[str]:
        """Counts that do not add up, one line each; a run with any has failed."""
        found = []
        d, c = self.documents, self.chunks
        if d.read != d.added + d.changed + d.unchanged + d.dead:
            found.append(
                f"{number_of(d.read, 'document')} read, but {d.added:,} added + "
                f"{d.changed:,} changed + {d.unchanged:,} unchanged + {d.dead:,} dead"
            )
        if c.chunks != c.embedded + c.reused + c.deduplicated + c.dead + c.superseded:
            found.append(
                f"{number_of(c.chunks, 'chunk')}, but {c.embedded:,} embedded + "
                f"{c.reused:,} reused + {c.deduplicated:,} deduplicated + {c.dead:,} dead + "
                f"{c.superseded:,} superseded"
            )
        if self.live_records != self.stored_records:
            found.append(
                f"{number_of(self.live_records, 'record')} applied, but the store counts "
                f"{self.stored_records:,}"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """For programs; ``dead_letters`` included."""
        return {**asdict(self), "dead_letters": self.dead_letters}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote."""
        record = {key: value for key, value in record.items() if key != "dead_letters"}
        return cls(
            **{
                **record,
                "documents": DocumentCounts(**record["documents"]),
                "chunks": ChunkCounts(**record["chunks"]),
                "records": RecordCounts(**record["records"]),
                "rate": RateUse(**record.get("rate", {})),
                "writes": WriteCounts(**record.get("writes", {})),
                "jobs": tuple(record.get("jobs", ())),
                "open_jobs": tuple(record.get("open_jobs", ())),
                "unneeded_jobs": tuple(record.get("unneeded_jobs", ())),
                "gates": tuple(record.get("gates", ())),
            }
        )


def start_run(
    workspace: Workspace, index: str, now: str, *, pipeline: Pipeline, version: str
) -> str:
    """Take a run id: the time, or a second after the newest run's; leaves ``started.json``.

    Later runs have greater ids, whatever the clocks of their machines say: which of two failures of
    a row came last must not rest on a clock.

    Args:
        workspace: of the index.
        index: its name.
        now: UTC, ISO 8601.
        pipeline: that is run.
        version: of the index, its name.
    """
    # For whoever finds a run without a report.
    process = {"host": socket.gethostname(), "pid": os.getpid()}
    started = {**process, "pipeline": pipeline, "version": version}
    run = re.sub(r"[^0-9TZ]", "", now.replace("+00:00", "Z"))
    newest = max(filter(_ID.fullmatch, _runs(workspace, index)), default="")
    if newest >= run:
        run = _a_second_after(newest)
    while True:
        try:
            workspace.create(f"{_folder(index)}/{run}/started.json", sealed(started))
        except AlreadyExistsError:
            run = _a_second_after(run)
        else:
            return run


def _a_second_after(run: str) -> str:
    time = datetime.strptime(run, _FORM).replace(tzinfo=UTC)
    return (time + timedelta(seconds=1)).strftime(_FORM)


def line_of(error: BaseException) -> str:
    """One line about the end of a run; our own errors are written for it."""
    if isinstance(error, EmbedmillError):
        return str(error)
    first = (str(error).strip().splitlines() or [""])[0]
    return redacted(f"unexpected {type(error).__name__}: {first}".rstrip(": "))


def write_report(workspace: Workspace, report: RunReport) -> str:
    """Write ``report.json``.

    Returns:
        Its path in the workspace.
    """
    path = f"{_folder(report.index)}/{report.run}/report.json"
    workspace.create(path, sealed(report.to_json()))
    return path


def read_reports(workspace: Workspace, index: str) -> Iterator[tuple[str, RunReport | None]]:
    """Runs of an index, newest first: id and report, None for a run that has not ended well.

    Raises:
        DamagedFileError: a report is torn.
        NewerFormatError: a newer embedmill wrote it.
    """
    for run in sorted(_runs(workspace, index), reverse=True):
        path = f"{_folder(index)}/{run}/report.json"
        data = workspace.read(path)
        yield run, None if data is None else _parsed(data, f"{workspace.url}/{path}")


def _parsed(data: bytes, path: str) -> RunReport:
    folder = path.rpartition("/")[0]
    record = unsealed(data, path, remedy=f"delete {folder}: only what this run says is lost")
    record.pop("dead_letters", None)
    require_known(RunReport, record, path)
    return RunReport.from_json(record)


def run_folder(index: str, run: str) -> str:
    """Where a run leaves what it says."""
    return f"{_folder(index)}/{run}"


def _runs(workspace: Workspace, index: str) -> set[str]:
    return {
        match.group(1)
        for entry in workspace.list(_folder(index))
        if (match := re.search(r"/runs/([^/]+)/", f"/{entry.path}"))
    }


def _folder(index: str) -> str:
    return f"indexes/{index}/runs"
