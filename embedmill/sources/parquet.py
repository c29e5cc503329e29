"""Rows of Parquet files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from embedmill.errors import PermanentError, SourceError
from embedmill.source import BLOCK_BYTES
from embedmill.sources.blocks import Row
from embedmill.sources.table_rows import RowForm, column_positions

# Of a damaged page the rows of its batch are lost that stand before it.
_BATCH_ROWS = 1_000
# Read ahead per column; without it Arrow reads a whole column of a row group at once.
_READ_BYTES = 2**20
_MEND = "put a whole file there, or take it out of what `source.path` names"


def parquet_rows(file: BinaryIO, form: RowForm, label: str) -> Iterator[Row]:
    """Yield one row per row, counted from 1 in the uri; memory holds one batch of rows.

    What is no Parquet file, or one without its end, is a single row with an error (``damaged``).

    Raises:
        SourceError: it lacks a column that is used, has it twice, or with a type that cannot be an
            id or a text.
        PermanentError: after the rows before it: a page is damaged (``damaged``).
    """
    try:
        table = pq.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        message = f"{label} is no readable Parquet file: {str(error).rstrip('.')}"
        yield form.error("", label, PermanentError(message, code="damaged", hint=_MEND))
        return
    schema = table.schema_arrow
    positions = column_positions(schema.names, form.columns, label)
    _refuse_types(schema, form, label)
    exact = {form.id_column, *form.text_columns}
    numbers = itertools.count(1)
    for batch in _batches(table, list(positions)):
        columns = {
            name: _values(batch.column(batch.schema.get_field_index(name)), as_text=name in exact)
            for name in positions
        }
        for index, number in zip(range(batch.num_rows), numbers, strict=False):
            yield form.row(
                f"{label}:{number}",
                columns[form.id_column][index],
                [columns[name][index] for name in form.text_columns],
                {name: columns[name][index] for name in form.metadata_columns},
            )


def _batches(table: Any, names: list[str]) -> Iterator[Any]:  # noqa: ANN401
    groups = [table.metadata.row_group(index) for index in range(table.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    rows = max(1, min(_BATCH_ROWS, BLOCK_BYTES * table.metadata.num_rows // max(1, size)))
    try:
        yield from table.iter_batches(batch_size=rows, columns=names, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise PermanentError(f"a page is damaged: {error}", code="damaged") from error


def _refuse_types(schema: Any, form: RowForm, label: str) -> None:  # noqa: ANN401
    checks = [(form.id_column, _can_be_id), *((name, _can_be_text) for name in form.text_columns)]
    for name, fits in checks:
        kind = _plain_type(schema.field(name).type)
        if not (fits(kind) or pa.types.is_null(kind)):
            what = "an id" if fits is _can_be_id else "a text"
            raise SourceError(
                f"{label}: the column {name!r} has the type {kind}, which cannot be {what}",
                code="column-type",
                hint="ids are text or whole numbers, texts are single values",
            )


def _plain_type(kind: Any) -> Any:  # noqa: ANN401
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _can_be_id(kind: Any) -> bool:  # noqa: ANN401
    return pa.types.is_integer(kind) or _is_text(kind) or _is_binary(kind)


def _can_be_text(kind: Any) -> bool:  # noqa: ANN401
    return not pa.types.is_nested(kind)


def _is_text(kind: Any) -> bool:  # noqa: ANN401
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: Any) -> bool:  # noqa: ANN401
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _values(column: Any, *, as_text: bool) -> list[object]:  # noqa: ANN401
    """Python values of a column; text that is not UTF-8 holds lone surrogates."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if as_text and _is_binary(column.type):
        return _decoded(column)
    narrowed = _microseconds(column.type)
    if narrowed != column.type:
        column = column.cast(narrowed, safe=False)
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return _decoded(column) if _is_text(column.type) else _one_by_one(column)
    except (ValueError, OverflowError):
        return _one_by_one(column)


def _decoded(column: Any) -> list[object]:  # noqa: ANN401
    raw = column.cast(pa.large_binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in raw]


def _one_by_one(column: Any) -> list[object]:  # noqa: ANN401
    """Values, with an error in place of each that Python cannot hold (a date of the year 20000)."""
    values: list[object] = []
    for scalar in column:
        try:
            values.append(scalar.as_py())
        except (ValueError, OverflowError) as error:
            values.append(PermanentError(f"a value cannot be read: {error}", code="metadata"))
    return values


def _microseconds(kind: Any) -> Any:  # noqa: ANN401
    """The same type without nanoseconds, which Python's own types cannot hold."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_microseconds(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_microseconds(field.type)) for field in kind])
    return kind
