"""Rows of JSON lines files."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import orjson

from embedmill.errors import PermanentError
from embedmill.sources.blocks import Row
from embedmill.sources.lines import Overlong, lines_of
from embedmill.sources.table_rows import MISSING, RowForm

logger = logging.getLogger(__name__)

_Record: TypeAlias = dict[str, Any]
# Id, texts, metadata of a row.
_Columns: TypeAlias = tuple[object, list[object], dict[str, object]]

# A line may be longer than the document in it: escapes write two bytes of UTF-8 as six. Up to this
# many times the limit of a document a line is still parsed, so that the row's id is known.
_LONGEST = 3
# Numbers beyond 64 bits come out of the fast parser as rounded floats of at least this size.
_LARGE = 2.0**63
_EXACT = frozenset({str, int, bool, type(None), type(MISSING)})


def json_rows(chunks: Iterable[bytes], form: RowForm, label: str) -> Iterator[Row]:
    """Yield one row per line that is not blank; the uri counts physical lines from 1.

    A line is parsed by the fast parser; what that refuses, and numbers that it would round, by the
    standard library.
    """
    unseen = set(form.columns)
    for number, line in enumerate(lines_of(chunks, _LONGEST * form.limit), 1):
        uri = f"{label}:{number}"
        try:
            record = _record(line, form)
            if record is None:
                continue
            if unseen:
                unseen.difference_update(record)
            id_value, texts, metadata = _exact_columns(record, line, form)
        except PermanentError as error:
            yield form.error("", uri, error)
        else:
            yield form.row(uri, id_value, texts, metadata, record)
    if unseen and len(unseen) < len(form.columns):
        names = ", ".join(map(repr, sorted(unseen)))
        logger.warning("no row of %s has a column %s", label, names)


def _record(line: bytes | Overlong, form: RowForm) -> _Record | None:
    """The object of one line; None for a blank line."""
    if isinstance(line, Overlong):
        raise form.too_large(line.size)
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        if not line.strip():
            return None
        record = _lenient(line)
    if type(record) is not dict:
        raise PermanentError("the line is JSON, but no object", code="json")
    return record


def _lenient(line: bytes) -> Any:  # noqa: ANN401 (any JSON)
    """Parse with the standard library: NaN is read, whole numbers are exact, bad bytes survive.

    Bad bytes become lone surrogates; they matter only where they stand in a column that is used.
    """
    try:
        return json.loads(line.decode("utf-8", "surrogateescape"))
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" at")
        raise PermanentError(f"{problem} at column {error.colno}", code="json") from None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits; nesting of a thousand levels.
        raise PermanentError(f"not readable as JSON: {error}", code="json") from None


def _exact_columns(record: _Record, line: bytes | Overlong, form: RowForm) -> _Columns:
    columns = _columns(record, form)
    id_value, texts, metadata = columns
    values = [id_value, *texts, *metadata.values()]
    if _EXACT.issuperset(map(type, values)) or isinstance(line, Overlong):
        return columns
    try:
        rounded = any(map(_holds_large_number, values))
    except RecursionError as error:
        raise PermanentError("nested too deeply", code="json") from error
    return _columns(_lenient(line), form) if rounded else columns


def _columns(record: _Record, form: RowForm) -> _Columns:
    return (
        record.get(form.id_column, MISSING),
        [record[name] for name in form.text_columns if name in record],
        {name: record[name] for name in form.metadata_columns if name in record},
    )


def _holds_large_number(value: object) -> bool:
    if isinstance(value, float):
        return not -_LARGE < value < _LARGE
    if isinstance(value, dict):
        return any(map(_holds_large_number, value.values()))
    return isinstance(value, list) and any(map(_holds_large_number, value))
