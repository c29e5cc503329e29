"""Parquet files that know whether they are whole: page checksums, and notes beside the schema."""

from __future__ import annotations

import io
from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq

from embedmill.errors import DamagedFileError


def digest_of(data: bytes) -> str:
    """32 hexadecimal digits of blake2b-128."""
    return blake2b(data, digest_size=16).hexdigest()


def to_parquet(table: pa.Table, *, compression: str) -> bytes:
    """A table as Parquet bytes; equal tables give equal bytes."""
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression=compression,
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def from_parquet(data: bytes, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read Parquet bytes, page checksums verified.

    Raises:
        DamagedFileError: torn, or not what was written.
    """
    try:
        # read_table takes five times as long for small files, and threads as much again.
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        table = file.read(None if columns is None else list(columns), use_threads=False)
        # A column that is not there would be left out.
        return table if columns is None else table.select(list(columns))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise _damaged(path, error) from error


def schema_of(data: bytes, path: str) -> pa.Schema:
    """The schema of Parquet bytes, with its notes; no row is read.

    Raises:
        DamagedFileError: torn, or not what was written.
    """
    try:
        return pq.read_schema(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"{path} does not read back as what was written ({type(error).__name__})",
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
