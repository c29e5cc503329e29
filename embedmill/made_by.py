"""Which run made a row: noted once for a file, and in a column for the rows of other runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa


def exceptions(runs: Mapping[int, str], count: int) -> pa.Array:
    """The column of the rows that other runs made than the file's.

    Args:
        runs: by row.
        count: rows of the table.
    """
    if not runs:
        return pa.nulls(count, pa.string())
    return pa.array([runs.get(row) for row in range(count)], pa.string())


def exceptions_in(table: pa.Table, column: str) -> dict[int, str]:
    """Runs by row, of the rows that other runs made than the file's."""
    if column not in table.column_names:
        return {}
    runs = table.column(column)
    if runs.null_count == len(runs):
        return {}
    return {int(row): runs[row].as_py() for row in np.flatnonzero(runs.is_valid())}


def run_of(schema: pa.Schema) -> str:
    """The run that made the file, "" where none is noted."""
    notes: dict[bytes, bytes] = schema.metadata or {}
    return notes.get(b"run", b"").decode()
