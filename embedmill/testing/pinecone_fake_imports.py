"""The fake Pinecone's bulk imports: files of a bucket, read as the import guide wants them.

An import goes on while it is looked at: after ``import_looks`` describes it reads its files. They
lie below its address in one folder per namespace, which must not exist yet; what is no ``.parquet``
file is passed over. With ``abort`` the first bad record ends it, and what was read before stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from embedmill.testing.fault_plan import planned
from embedmill.testing.pinecone_fake_checks import check_id, checked_vector, kept_metadata
from embedmill.testing.pinecone_fake_faults import Fault
from embedmill.testing.pinecone_fake_index import FakeImport, FakeIndex, Namespace, Stored
from embedmill.testing.pinecone_fake_replies import ApiError, refusal
from embedmill.testing.pinecone_fake_vectors import Done, Query, paged

_MOST_FILES = 100_000
_TIME = "2026-11-01T12:00:00Z"
_ENDED = ("Completed", "Failed", "Cancelled")


class _Broken(Exception):  # noqa: N818 (the state of an import, not of the program)
    """The import ends here, with these words."""


@dataclass(slots=True)
class _Reading:
    index: FakeIndex
    job: FakeImport
    abort: bool


def start(index: FakeIndex, body: Any, faults: Sequence[Fault]) -> Done:  # noqa: ANN401 (JSON)
    """Take an import on."""
    uri = body.get("uri", "")
    if not re.fullmatch(r"s3://[a-z0-9.-]{3,63}/.*", uri):
        raise refusal(f"Invalid import URI {uri!r}")
    if index.deployment.get("cloud") != "aws":
        raise refusal("Importing from S3 is supported for indexes hosted on AWS only")
    mode = (body.get("errorMode") or {}).get("onError", "abort")
    if mode not in {"abort", "continue"}:
        raise refusal(f"Invalid error mode {mode!r}")
    job = FakeImport(str(len(index.imports) + 1), uri, mode)
    lag = planned(faults, "list-lag")
    job.hidden_looks = lag.count if lag else 0
    ending = planned(faults, "fail", "cancel", "lose", "stall")
    job.ending = ending
    index.imports.append(job)
    return Done({"id": job.id})


def listing(index: FakeIndex, query: Query) -> Done:
    """One page of imports, newest last."""
    seen = []
    for job in index.imports:
        if job.hidden_looks:
            job.hidden_looks -= 1
        else:
            seen.append(job)
    names = [f"{int(job.id):09d}" for job in seen]
    page, more = paged(names, query)
    described = [_described(job) for job in seen if f"{int(job.id):09d}" in page]
    return Done({"data": described} | more)


def describe(index: FakeIndex, name: str) -> Done:
    """One import; looking at it is what moves it on."""
    job = _known(index, name)
    job.looks += 1
    if job.status == "Pending":
        job.status = "InProgress"
    elif job.status == "InProgress" and job.looks > index.options.import_looks:
        _end(index, job)
    return Done(_described(job))


def cancel(index: FakeIndex, name: str) -> Done:
    """Stop an import; what it has read stays."""
    job = _known(index, name)
    if job.status not in _ENDED:
        job.status = "Cancelled"
    return Done({})


def _known(index: FakeIndex, name: str) -> FakeImport:
    found = next((job for job in index.imports if job.id == name), None)
    if found is None:
        raise refusal(f"Operation {name} not found", 404)
    return found


def _end(index: FakeIndex, job: FakeImport) -> None:
    ending = job.ending
    if ending is not None and ending.do == "stall":
        return
    job.status = "Completed"
    try:
        _read(_Reading(index, job, job.mode == "abort"), _files(index, job.uri))
    except _Broken as broken:
        job.status, job.error = "Failed", str(broken)
    if ending is not None and ending.do == "fail":
        job.status, job.error = "Failed", ending.value or "Internal error"
    if ending is not None and ending.do == "cancel":
        job.status = "Cancelled"


def _files(index: FakeIndex, uri: str) -> dict[str, list[bytes]]:
    """Contents of the files by namespace."""
    prefix = uri.rstrip("/") + "/"
    found: dict[str, list[bytes]] = {}
    for path, content in sorted(index.options.bucket(uri).items()):
        folder, _, name = path.removeprefix(prefix).partition("/")
        if name.endswith(".parquet") and "/" not in name:
            found.setdefault(folder, []).append(content)
    if not found:
        raise _Broken(f"No Parquet files were found under {uri}")
    if sum(map(len, found.values())) > _MOST_FILES:
        raise _Broken("Too many files")
    return found


def _read(reading: _Reading, files: Mapping[str, list[bytes]]) -> None:
    for name in files:
        if name in reading.index.aliases or name in reading.index.namespaces:
            raise _Broken(f"Namespace {name!r} already exists")
    for name, contents in files.items():
        namespace = Namespace(reading.index.options)
        reading.index.namespaces[name] = namespace
        for content in contents:
            _read_file(reading, namespace, content)


def _read_file(reading: _Reading, namespace: Namespace, content: bytes) -> None:
    try:
        table = pq.read_table(pa.BufferReader(content))
    except pa.ArrowException as error:
        raise _Broken(f"A file is not Parquet: {error}") from error
    _check_columns(table.schema)
    records: dict[str, Stored | None] = {}
    ending = reading.job.ending
    for row in table.to_pylist():
        if ending is not None and ending.do == "lose" and not records and not reading.job.records:
            ending = None
            reading.job.records += 1
            continue
        try:
            record, stored = _record(reading.index, row)
        except (ApiError, ValueError) as error:
            if reading.abort:
                namespace.write(records)
                raise _Broken(f"A record cannot be read: {row.get('id')!r}: {error}") from error
            continue
        records[record] = stored
        reading.job.records += 1
    namespace.write(records)


def _check_columns(schema: pa.Schema) -> None:
    wanted = {"id": pa.types.is_string, "metadata": pa.types.is_string, "values": _is_floats}
    for name in schema.names:
        if name not in wanted or not wanted[name](schema.field(name).type):
            raise _Broken(f"Unexpected column {name!r} of type {schema.field(name).type}")
    for name in ("id", "values"):
        if name not in schema.names:
            raise _Broken(f"Missing column {name!r}")


def _is_floats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_floating(kind.value_type))


def _record(index: FakeIndex, row: Mapping[str, Any]) -> tuple[str, Stored]:
    record = check_id(row["id"])
    values = checked_vector(index, row["values"], what=f"The values of vector ID '{record}'")
    if not np.isfinite(values).all() or not values.any():
        raise ValueError("the vector is zero or not finite")
    metadata = orjson.loads(row["metadata"]) if row.get("metadata") else {}
    return record, Stored(values, kept_metadata(metadata))


def _described(job: FakeImport) -> dict[str, Any]:
    done = job.status in _ENDED
    described: dict[str, Any] = {
        "id": job.id,
        "uri": job.uri,
        "status": job.status,
        "createdAt": _TIME,
        "percentComplete": 100.0 if job.status == "Completed" else 0.0,
        "recordsImported": job.records,
    }
    if done:
        described["finishedAt"] = _TIME
    if job.error:
        described["error"] = job.error
    return described
