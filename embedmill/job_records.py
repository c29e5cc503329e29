"""What the workspace knows of embedding jobs: intents, handles, outcomes, and rows that are safe.

``jobs/<chunking-id>/<embedding-id>/<job-key>/`` holds ``intent.json`` (what is about to be sent),
``submitted.json`` (the provider's ids), ``outcome.json`` (what became of every row; the job is
done) and ``rows/``: vectors of segments that the job could not complete. ``loans/``, beside the
jobs, holds which rows of segments that wait take the vectors of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from embedmill.batch_provider import JobHandle
from embedmill.embedder import Vectors
from embedmill.embedding_job import Buckets
from embedmill.errors import DamagedFileError, RefusedError
from embedmill.job_requests import Requests
from embedmill.job_rows import Rows
from embedmill.parquet_files import from_parquet, to_parquet
from embedmill.recipe import fingerprint_of
from embedmill.sealed_json import require_known, sealed, unsealed
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan
from embedmill.vector_layer import LayerNames
from embedmill.workspace import Workspace, create_once, require

# Status of a job whose file the provider did not take for its size, and code of a row.
TOO_LARGE = "too-large"
# Status of a job that was let be, for its rows have vectors already.
UNNEEDED = "unneeded"


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be submitted.

    Attributes:
        key: of the job; follows from the rows and their tries.
        created: UTC.
        fingerprint: of the request file's bytes.
        requests: rows of each request, in the order of the file's lines.
        inputs: rows in all.
        bytes: of the file.
        tokens: as counted here.
        canaries: requests with known answers, at the beginning of the file.
        provider: kind of the provider that it is sent through; "" in records of before this was
            written down.
        account: digest of the address and the key that it is sent with; "" as above.
    """

    key: str
    created: datetime
    fingerprint: str
    requests: Requests
    inputs: int
    bytes: int
    tokens: int
    canaries: int = 0
    provider: str = ""
    account: str = ""

    def rows(self) -> dict[SegmentKey, Sequence[int]]:
        """Rows by segment."""
        return self.requests.rows()


def job_key(requests: Requests, attempt: int) -> str:
    """12 hexadecimal digits that follow from the rows and from how often these were sent before."""
    return fingerprint_of([attempt, requests.to_json()])


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job; with it the job is done.

    Attributes:
        status: of the provider's job, or ``quarantined``, ``abandoned``, ``too-large``,
            ``unneeded``.
        buckets: of its rows.
        tokens: charged, as far as the provider said; None: it did not.
        ended: UTC, ISO 8601, when it was collected.
        counted: the rows were tried; False when the job never ran or could not be used.
        again: rows to be sent again, by segment.
        untried: of these, the ones that were not tried: nobody paid for them.
        alone: of all these, the ones that need a request of their own.
        dead: (shard, number, row, code, message) of the rows that died.
        note: for a person; why a job was not used.
    """

    status: str
    buckets: Buckets = field(default_factory=Buckets)
    tokens: int | None = None
    ended: str = ""
    counted: bool = True
    again: Rows = field(default_factory=dict)
    untried: Rows = field(default_factory=dict)
    alone: Rows = field(default_factory=dict)
    dead: tuple[tuple[int, int, int, str, str], ...] = ()
    note: str = ""

    @property
    def too_large(self) -> int:
        """Rows of a file that the provider did not take for its size; 0 of any other."""
        return sum(map(len, self.again.values())) if self.status == TOO_LARGE else 0

    def tried(self) -> Rows:
        """Rows to be sent again for which this job counts as a try."""
        if not self.counted:
            return {}
        spared = {key: set(some) for key, some in self.untried.items()}
        return {
            key: [row for row in some if row not in spared.get(key, ())]
            for key, some in self.again.items()
        }


def outcome_of_too_large(intent: Intent, said: str, now: datetime) -> JobOutcome:
    """Of a job whose file the provider did not take for its size; nothing of it was tried."""
    rows = intent.rows()
    outcome = JobOutcome(TOO_LARGE, tokens=0, ended=now.isoformat(), counted=False, note=said)
    if intent.inputs > 1:
        return replace(outcome, again=rows)
    ((key, (row,)),) = rows.items()
    return replace(outcome, dead=((key.shard, key.number, row, TOO_LARGE, said),))


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as the workspace has it."""

    intent: Intent
    handle: JobHandle | None
    outcome: JobOutcome | None

    def require_provider(self, kind: str) -> None:
        """Make sure that a job is asked about where it was sent.

        A job that may have been sent another way would be looked for in vain, and paid for again.

        Raises:
            RefusedError: it was sent, or is about to be, through another kind of provider.
        """
        sent = self.handle.provider if self.handle else self.intent.provider
        if sent not in {kind, ""}:
            was = "was" if self.handle else "may have been"
            raise RefusedError(
                f"embedding job {self.intent.key} {was} sent through {sent}; the settings name "
                f"{kind}, which knows nothing of it",
                code="other-jobs",
                hint="set embedder.jobs_through as it was (cohere: embed_jobs, cohere_batches: "
                "batches) and run again until the job has ended, or end it there with: embedmill "
                f"jobs cancel {self.intent.key} -c SETTINGS",
            )

    def require_account(self, account: str) -> None:
        """Make sure that a job which may have been created is looked for where it would be.

        With another key, or at another address, it would be looked for in vain, and paid for again.
        A job that is known to exist is asked about by its id, which no other account has.

        Raises:
            RefusedError: it may have been created with another key or at another address.
        """
        key, then = self.intent.key, self.intent.account
        if self.handle is None and then not in {account, ""}:
            raise RefusedError(
                f"embedding job {key} may have been sent with another API key or to another "
                "base_url than the settings have now, which cannot find it",
                code="other-account",
                hint="set embedder.api_key and embedder.base_url as they were and run again until "
                "the job has an outcome. Where the old key is gone and this one is of the same "
                f"account, embedmill jobs cancel {key} -c SETTINGS looks for the job with it: that "
                "is ended, or given up where there is none, and its rows are sent again",
            )


class JobRecords:
    """Records of the jobs of one index version."""

    def __init__(self, workspace: Workspace, index: str, version: LayerNames) -> None:
        self._workspace = workspace
        names = f"{version.chunking.id}/{version.embedding.id}"
        self._folder = f"indexes/{index}/jobs/{names}"

    def all(self) -> Iterator[JobRecord]:
        """Every job, in the order of their keys."""
        paths, folders = self._jobs()
        for folder in folders:
            yield self._record(folder, paths)

    def open(self) -> Iterator[JobRecord]:
        """Every job without an outcome, in the order of their keys."""
        paths, folders = self._jobs()
        for folder in folders:
            if f"{folder}/outcome.json" not in paths:
                yield self._record(folder, paths)

    def outcomes(self) -> Iterator[tuple[str, JobOutcome]]:
        """Key and outcome of every job that is done; the intents, which are long, are not read."""
        paths, folders = self._jobs()
        for folder in folders:
            if f"{folder}/outcome.json" in paths:
                outcome = _outcome(self._read(JobOutcome, f"{folder}/outcome.json"))
                yield folder.rsplit("/", 1)[-1], outcome

    def taken(self) -> Iterator[Intent]:
        """Jobs that are done and whose rows were tried: the provider has taken their files."""
        for key, outcome in self.outcomes():
            if outcome.counted:
                yield _intent(self._read(Intent, f"{self._folder}/{key}/intent.json"))

    def handle(self, key: str) -> JobHandle | None:
        """What finds a job again; None: it was never submitted."""
        path = f"{self._folder}/{key}/submitted.json"
        data = self._workspace.read(path)
        return None if data is None else _handle(unsealed(data, path))

    def _jobs(self) -> tuple[set[str], list[str]]:
        """All paths, and the folders of jobs."""
        paths = {entry.path for entry in self._workspace.list(self._folder)}
        ending = "/intent.json"
        folders = [path.removesuffix(ending) for path in paths if path.endswith(ending)]
        return paths, sorted(folders)

    def _record(self, folder: str, paths: set[str]) -> JobRecord:
        handle = outcome = None
        if f"{folder}/submitted.json" in paths:
            handle = _handle(self._read(JobHandle, f"{folder}/submitted.json"))
        if f"{folder}/outcome.json" in paths:
            outcome = _outcome(self._read(JobOutcome, f"{folder}/outcome.json"))
        return JobRecord(_intent(self._read(Intent, f"{folder}/intent.json")), handle, outcome)

    def _json(self, path: str) -> dict[str, Any]:
        return unsealed(require(self._workspace, path), path)

    def _read(self, kind: type, path: str) -> dict[str, Any]:
        record = self._json(path)
        require_known(kind, record, path)
        return record

    def intend(self, intent: Intent) -> None:
        """Write an intent; afterwards it may be sent."""
        record = {
            **{name: getattr(intent, name) for name in Intent.__slots__ if name != "requests"},
            "created": intent.created.isoformat(),
            "requests": intent.requests.to_json(),
        }
        self._put(f"{intent.key}/intent.json", record)

    def submitted(self, key: str, handle: JobHandle) -> None:
        """Write down that the job exists, and how it is found."""
        record = {**asdict(handle), "created_at": handle.created_at.isoformat()}
        self._put(f"{key}/submitted.json", record)

    def collected(self, key: str, outcome: JobOutcome) -> None:
        """Write the outcome; the job is done."""
        record = {
            **{name: getattr(outcome, name) for name in JobOutcome.__slots__},
            "buckets": asdict(outcome.buckets),
            "again": _rows_json(outcome.again),
            "untried": _rows_json(outcome.untried),
            "alone": _rows_json(outcome.alone),
        }
        self._put(f"{key}/outcome.json", record)

    def _put(self, path: str, record: Mapping[str, object]) -> None:
        if not create_once(self._workspace, f"{self._folder}/{path}", sealed(record)):
            raise DamagedFileError(
                f"{self._folder}/{path} is there with other content: another run works on this job",
                hint="let one of them end, then run the same command again",
            )

    def keep_rows(
        self, key: str, segment: SegmentKey, rows: Sequence[int], vectors: Vectors
    ) -> str:
        """Put vectors of a segment that is not complete yet; doing it again changes nothing.

        Returns:
            Where they are.

        Raises:
            DamagedFileError: other vectors are there.
        """
        flat = pa.array(np.ascontiguousarray(vectors).ravel())
        table = pa.table(
            {
                "row": pa.array(rows, pa.int32()),
                "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            }
        )
        path = f"{self._folder}/{key}/rows/s{segment.shard:04d}-{segment.number:08d}.parquet"
        if not create_once(self._workspace, path, to_parquet(table, compression="none")):
            raise DamagedFileError(
                f"{path} is there with other content: another run works on this job",
                hint="let one of them end, then run the same command again",
            )
        return path

    def kept_rows(self) -> dict[SegmentKey, list[str]]:
        """Where vectors of incomplete segments are, by segment."""
        return self._by_segment(r"/rows/s(\d{4,})-(\d{8})\.parquet$")

    def lend(self, segment: SegmentKey, loans: Sequence[Loan], *, more: bool = False) -> str:
        """Write down which rows of a segment that waits take other segments' vectors.

        Loans are hints: what another process wrote down before stands.

        Args:
            segment: that waits.
            loans: of it.
            more: beside those of before.

        Returns:
            Where they are.
        """
        record = [(m.row, m.source.shard, m.source.number, m.source_row) for m in loans]
        name = f"-{fingerprint_of(record)}" if more else ""
        path = f"{self._folder}/loans/s{segment.shard:04d}-{segment.number:08d}{name}.json"
        create_once(self._workspace, path, sealed({"loans": record}))
        return path

    def lent(self) -> dict[SegmentKey, list[str]]:
        """Where the loans of segments are that wait, or waited."""
        return self._by_segment(r"/loans/s(\d{4,})-(\d{8})(?:-\w+)?\.json$")

    def loans(self, path: str) -> list[Loan]:
        """Loans of one segment."""
        return [
            Loan(row, SegmentKey(shard, number), source_row)
            for row, shard, number, source_row in self._json(path)["loans"]
        ]

    def _by_segment(self, pattern: str) -> dict[SegmentKey, list[str]]:
        """Files that are named after a segment."""
        found: dict[SegmentKey, list[str]] = {}
        for entry in self._workspace.list(self._folder):
            match = re.search(pattern, entry.path)
            if match:
                key = SegmentKey(int(match.group(1)), int(match.group(2)))
                found.setdefault(key, []).append(entry.path)
        return found

    def forget(self, paths: Sequence[str]) -> None:
        """Delete vectors or loans whose segments are complete: the vectors layer has them."""
        self._workspace.delete(paths)

    def row_numbers(self, path: str) -> list[int]:
        """Rows of one file."""
        numbers: list[int] = (
            from_parquet(require(self._workspace, path), path, ["row"]).column("row").to_pylist()
        )
        return numbers

    def read_rows(self, path: str, dimension: int) -> tuple[list[int], Vectors]:
        """Rows and vectors of one file."""
        table = from_parquet(require(self._workspace, path), path)
        vectors = table.column("vector").combine_chunks().flatten().to_numpy()
        rows: list[int] = table.column("row").to_pylist()
        return rows, vectors.reshape(-1, dimension).astype(np.float32, copy=False)


def _rows_json(rows: Rows) -> list[list[Any]]:
    return [[key.shard, key.number, list(values)] for key, values in sorted(rows.items())]


def _rows(record: list[list[Any]]) -> dict[SegmentKey, list[int]]:
    return {SegmentKey(shard, number): rows for shard, number, rows in record}


def _intent(record: dict[str, Any]) -> Intent:
    requests = Requests.from_json(record["requests"])
    created = datetime.fromisoformat(record["created"])
    return Intent(**{**record, "requests": requests, "created": created})


def _handle(record: dict[str, Any]) -> JobHandle:
    return JobHandle(**{**record, "created_at": datetime.fromisoformat(record["created_at"])})


def _outcome(record: dict[str, Any]) -> JobOutcome:
    dead = tuple((s, n, row, code, message) for s, n, row, code, message in record["dead"])
    return JobOutcome(
        **{
            **record,
            "buckets": Buckets(**record["buckets"]),
            "again": _rows(record["again"]),
            # Absent in records of before there were such rows.
            "untried": _rows(record.get("untried", [])),
            "alone": _rows(record["alone"]),
            "dead": dead,
        }
    )
