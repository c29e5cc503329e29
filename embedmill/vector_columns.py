"""Columns of the vectors layer as numpy and Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from embedmill.embedder import Vectors


def vectors_in(column: pa.ChunkedArray, dimension: int) -> Vectors:
    """A column of lists of fixed size as an array of its own; NaN where there is none."""
    flat = column.combine_chunks().flatten().to_numpy().reshape(-1, dimension)
    if column.null_count == 0:
        # What Arrow holds cannot be written to.
        return np.array(flat, dtype=np.float32)
    vectors = np.full((len(column), dimension), np.nan, dtype=np.float32)
    vectors[np.asarray(column.is_valid())] = flat
    return vectors


def failures_in(table: pa.Table) -> dict[int, tuple[str, str]]:
    """Code and message of the rows that have them."""
    codes, messages = table.column("failure_code"), table.column("failure_message")
    rows = np.flatnonzero(codes.is_valid()) if codes.null_count < len(codes) else ()
    return {int(row): (codes[row].as_py(), messages[row].as_py() or "") for row in rows}
