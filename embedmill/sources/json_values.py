"""Values of tables and front matter as JSON types.

| value | becomes |
|---|---|
| text, truth values, null, integers of 64 bits, finite numbers | themselves |
| other integers, decimals | decimal text |
| NaN, infinities | null |
| dates, times, timestamps | ISO 8601 text; a zone only where the value has one |
| durations | seconds |
| bytes | base64 text |
| lists, tuples | lists |
| sets | lists, sorted by their JSON text |
| objects, structs | objects; keys that are not text become their JSON text |
| maps of Parquet | lists of [key, value] |
| anything else (UUIDs) | its text |

Nanoseconds of Parquet timestamps are cut to microseconds.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import orjson

# Stores keep signed integers of 64 bits; larger ones would come back as rounded floats.
INT64 = range(-(2**63), 2**63)


def json_value(value: object) -> object:
    """Reduce a value to JSON types by the table above."""
    for kind, convert in _CONVERTERS:
        if isinstance(value, kind):
            return convert(value)
    return str(value)


def is_lossy(value: object) -> bool:
    """Whether a number in it becomes null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(is_lossy, value.values()))
    return isinstance(value, list | tuple) and any(map(is_lossy, value))


def json_text(value: object) -> str:
    """JSON of a value as text; text itself stays as it is."""
    reduced = json_value(value)
    return reduced if isinstance(reduced, str) else orjson.dumps(reduced).decode()


def _same(value: object) -> object:
    return value


def _integer(value: int) -> object:
    return value if value in INT64 else str(value)


def _number(value: float) -> object:
    return value if math.isfinite(value) else None


def _moment(value: date | time) -> object:
    return value.isoformat()


def _base64(value: bytes) -> object:
    return base64.b64encode(value).decode()


def _list(values: list[object]) -> object:
    return [json_value(value) for value in values]


def _set(values: set[object]) -> object:
    return sorted((json_value(value) for value in values), key=json_text)


def _object(values: Mapping[object, object]) -> object:
    return {json_text(key): json_value(value) for key, value in values.items()}


# The first that fits; bool is an int, and datetime a date.
_CONVERTERS: tuple[tuple[type | tuple[type, ...], Callable[..., object]], ...] = (
    ((str, bool, type(None)), _same),
    (int, _integer),
    (float, _number),
    ((list, tuple), _list),
    (Mapping, _object),
    ((datetime, date, time), _moment),
    (Decimal, str),
    (bytes, _base64),
    (timedelta, timedelta.total_seconds),
    ((set, frozenset), _set),
)
