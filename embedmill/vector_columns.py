"""Columns of the vectors layer as numpy and Python."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embedmill.embedder import Vectors

# On disk, whatever the machine.
_FLOAT32 = np.dtype("<f4")


def vector_column(vectors: Vectors, absent: npt.NDArray[np.bool_]) -> pa.Array:
    """Rows as binary values of a fixed size, float32 little-endian; null where they are absent.

    As lists of floats every component has a level of its own in Parquet, which takes longer to
    write and to read than all the rest of a segment: 5.6 us a row of 1,536 components to read,
    binary ones 0.2.
    """
    count, dimension = vectors.shape
    data = np.ascontiguousarray(vectors, dtype=_FLOAT32)
    present = pa.array(~absent).buffers()[1] if absent.any() else None
    kind = pa.binary(dimension * _FLOAT32.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(kind, count, [present, pa.py_buffer(data)])


def vectors_in(column: pa.ChunkedArray, dimension: int) -> Vectors:
    """A column of vectors as an array that cannot be written to, NaN where there is none.

    What Arrow holds is not copied, so that others may read the same memory.

    Args:
        column: binary values of a fixed size, or lists of it as in files of earlier releases.
        dimension: of the vectors.
    """
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    present = array.drop_null()
    if pa.types.is_fixed_size_list(present.type):
        flat = present.flatten().to_numpy()
    else:
        start = present.offset * dimension
        flat = np.frombuffer(present.buffers()[1], _FLOAT32)[start:][: len(present) * dimension]
    vectors: Vectors = flat.reshape(-1, dimension).astype(np.float32, copy=False)
    if len(present) < len(column):
        rows, vectors = vectors, np.full((len(column), dimension), np.nan, dtype=np.float32)
        vectors[np.asarray(column.is_valid())] = rows
    vectors.flags.writeable = False
    return vectors


def failure_columns(failures: Mapping[int, tuple[str, str]], count: int) -> tuple[pa.Array, ...]:
    """Codes and messages of so many rows, null in those that have none."""
    if not failures:
        return pa.nulls(count, pa.string()), pa.nulls(count, pa.string())
    reasons = [failures.get(row, (None, None)) for row in range(count)]
    codes, messages = zip(*reasons, strict=True)
    return pa.array(codes, pa.string()), pa.array(messages, pa.string())


def failures_in(table: pa.Table) -> dict[int, tuple[str, str]]:
    """Code and message of the rows that have them."""
    codes, messages = table.column("failure_code"), table.column("failure_message")
    rows = np.flatnonzero(codes.is_valid()) if codes.null_count < len(codes) else ()
    return {int(row): (codes[row].as_py(), messages[row].as_py() or "") for row in rows}
