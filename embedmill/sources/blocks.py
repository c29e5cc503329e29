"""Cutting a stream of rows into Arrow blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from embedmill.document import RAW_SCHEMA
from embedmill.source import BLOCK_BYTES, BLOCK_ROWS

# A row in the order of RAW_SCHEMA. Plain tuples: with a million small rows, building an object with
# seven attributes for each takes longer than parsing their JSON. Metadata is UTF-8 already.
Row: TypeAlias = tuple[str, bytes | None, str, bytes, str, str | None, str | None, bytes | None]

# The first block is small and each one twice the one before, so that the stages after the source
# have work early.
_FIRST_BYTES = 2**18

# Offsets, validity, media type and error columns of one row.
_ROW_OVERHEAD = 128


def error_row(
    doc_id: str, media_type: str, uri: str, *, code: str, message: str, metadata: bytes = b"{}"
) -> Row:
    """A row that could not be read."""
    return (doc_id, None, media_type, metadata, uri, code, message, None)


def blocks_of(rows: Iterable[Row]) -> Iterator[pa.Table]:
    """Yield tables in ``RAW_SCHEMA`` within the limits that the contract of a source sets.

    A block is cut before the row that would make it too large, so at most one block is held.
    """
    held: list[Row] = []
    size, most = 0, _FIRST_BYTES
    for row in rows:
        # A character takes four bytes of UTF-8 at most.
        weight = (
            _ROW_OVERHEAD
            + len(row[1] or b"")
            + len(row[3])
            + 4 * (len(row[0]) + len(row[4]) + len(row[6] or ""))
        )
        if held and (len(held) >= BLOCK_ROWS or size + weight > most):
            yield _table(held)
            held, size = [], 0
            most = min(2 * most, BLOCK_BYTES)
        held.append(row)
        size += weight
    if held:
        yield _table(held)


def _table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)
