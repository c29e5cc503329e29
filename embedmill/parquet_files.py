"""Parquet files that know whether they are whole: a digest of the file, among its notes.

Page checksums cover the pages alone. A bit that turns over in the footer makes another file that
still reads: other column names, other rows.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq

from embedmill.errors import DamagedFileError

# The note that holds the seal; what comes before the digest marks it in the bytes of the file.
_SEAL = b"seal"
_BLANK = b"embedmill-seal:" + b"0" * 32
_MARKED = len(b"embedmill-seal:")


def digest_of(data: bytes) -> str:
    """32 hexadecimal digits of blake2b-128."""
    return blake2b(data, digest_size=16).hexdigest()


def to_parquet(table: pa.Table, *, compression: str) -> bytes:
    """A table as Parquet bytes; equal tables give equal bytes."""
    notes = {**(table.schema.metadata or {}), _SEAL: _BLANK}
    sink = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata(notes),
        sink,
        compression=compression,
        use_dictionary=False,
        write_statistics=False,
    )
    data = bytearray(sink.getbuffer())
    start, end = _place_of_seal(data)
    data[start:end] = _seal_of(data, start, end)
    return bytes(data)


def _place_of_seal(data: bytes | bytearray) -> tuple[int, int]:
    """Where the footer, which ends the file, says the seal in plain bytes."""
    marker = data.rfind(_BLANK[:_MARKED])
    start = marker + _MARKED
    return (start, start + len(_BLANK) - _MARKED) if marker >= 0 else (0, 0)


def _seal_of(data: bytes | bytearray, start: int, end: int) -> bytes:
    """The digest of a file whose seal stands at [start, end), which counts as zeros."""
    digest = blake2b(memoryview(data)[:start], digest_size=16)
    digest.update(_BLANK[_MARKED:])
    digest.update(memoryview(data)[end:])
    return digest.hexdigest().encode()


def _is_whole(data: bytes) -> bool:
    start, end = _place_of_seal(data)
    return end > start and data[start:end] == _seal_of(data, start, end)


def from_parquet(data: bytes, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read Parquet bytes.

    Raises:
        DamagedFileError: torn, or not what was written.
    """
    if not _is_whole(data):
        raise _damaged(path)
    try:
        # read_table takes five times as long for small files, and threads as much again.
        file = pq.ParquetFile(pa.BufferReader(data))
        table = file.read(None if columns is None else list(columns), use_threads=False)
        # A column that is not there would be left out.
        return table if columns is None else table.select(list(columns))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise _damaged(path) from error


def schema_of(data: bytes, path: str) -> pa.Schema:
    """The schema of Parquet bytes, with its notes; no row is read.

    Raises:
        DamagedFileError: torn, or not what was written.
    """
    if not _is_whole(data):
        raise _damaged(path)
    try:
        return pq.read_schema(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path) from error


def _damaged(path: str) -> DamagedFileError:
    return DamagedFileError(
        f"{path} does not read back as what was written",
        hint="restore it from a copy of the workspace",
    )


def note_of(schema: pa.Schema, path: str, name: str) -> str:
    """A note that was written with the schema.

    Raises:
        DamagedFileError: it is not there.
    """
    value = (schema.metadata or {}).get(name.encode())
    if value is None:
        raise DamagedFileError(f"{path} lacks its {name!r} entry")
    return str(value.decode())
