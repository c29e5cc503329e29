"""Payloads and filters: what a record may carry beside its vector, the same for every store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import orjson

from embedmill.errors import RefusedError

Payload = dict[str, Any]
Scalar: TypeAlias = str | int | float | bool
# Equality on payload keys, all of them; a list or tuple of values means any of them.
# ``metadata.KEY`` is the key KEY of the payload's metadata, whatever dots are in KEY; every other
# key is one of the payload itself. A payload value that is a list matches when one of its elements
# does. 1 and 1.0 are equal (above 2**53 whole numbers only equal whole numbers), True and 1 are
# not.
Filter = Mapping[str, Scalar | Sequence[Scalar]]

_METADATA = "metadata."
# Deeper nesting is accepted by Qdrant's embedded engine, but above 122 levels its log cannot be
# read again and the whole collection no longer opens (measured, 0.9.0).
MAX_PAYLOAD_DEPTH = 64
# Above, not every integer is a float64, and stores compare numbers as float64.
EXACT_FLOAT = 2**53
# Integers outside are turned into floats by one store or another.
_INTEGERS = range(-(2**63), 2**63)
_SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
# The others are what they are.
_LOOKED_AT = _CONTAINERS | {int, float}
# Of fewer objects a column is too short to be worth a look of its own.
_MANY = 16
# Of 1,000 bytes, as most payloads are: less than any store's limit for one.
_MEASURED_TOGETHER = 32
# Without these flags dates, dataclasses and subclasses would pass as something else.
_STRICT_JSON = (
    orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def json_ready(payload: Payload) -> bytes:
    """Payload as JSON bytes.

    Raises:
        ValueError: it holds something that JSON, or one of the stores, cannot give back as it was:
            NaN, bytes, dates, integers of more than 64 bits, lone surrogates, other types than
            JSON's own (subclasses too), nesting deeper than ``MAX_PAYLOAD_DEPTH``.
    """
    text = _strict_json([payload])
    _refuse_values([payload])
    return text[1:-1]


def suspects(limit: int, payloads: Sequence[Payload]) -> Sequence[int]:
    """Rows that :func:`json_ready` refuses, or makes more bytes of than the limit.

    All rows when there are such and it cannot be said which.
    """
    try:
        longer = longer_than(limit, payloads)
        _refuse_values(payloads)
    except ValueError:
        return range(len(payloads))
    return longer


def longer_than(limit: int, objects: Sequence[Payload]) -> list[int]:
    """Rows of the objects that have more than so many bytes as JSON.

    Some are written as one text, which takes a fifth of the time that one by one take; only what
    is too long for that is looked at in smaller parts.

    Raises:
        ValueError: one of them is no JSON.
    """
    return [
        start + row
        for start in range(0, len(objects), _MEASURED_TOGETHER)
        for row in _longer_than(limit, objects[start : start + _MEASURED_TOGETHER])
    ]


def _longer_than(limit: int, objects: Sequence[Payload]) -> list[int]:
    together = len(_strict_json(objects))
    if together <= limit:
        return []
    if len(objects) == 1:
        # Two brackets more than the object itself.
        return [0] if together - 2 > limit else []
    # So many that they fit even when half of them are twice as long.
    size = max(1, len(objects) * limit // (2 * together))
    return [
        start + row
        for start in range(0, len(objects), size)
        for row in _longer_than(limit, objects[start : start + size])
    ]


def _strict_json(objects: Sequence[Payload]) -> bytes:
    if set(map(type, objects)) - {dict}:
        raise ValueError("it is not an object with keys")
    try:
        return orjson.dumps(objects, option=_STRICT_JSON)
    except TypeError as error:
        raise ValueError(str(error)) from error


def conditions_of(where: Filter | None) -> dict[str, list[Scalar]]:
    """A filter as allowed values by key.

    Raises:
        RefusedError: a value is not a string, a number or a truth value that a payload could hold.
    """
    conditions: dict[str, list[Scalar]] = {}
    for key, wanted in (where or {}).items():
        values: list[Any] = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        problem = _condition_problem(key, values)
        if problem:
            raise RefusedError(f"the filter on {key!r} cannot be used: {problem}", code="filter")
        conditions[key] = values
    return conditions


def matches(payload: Payload, conditions: Mapping[str, Sequence[Scalar]]) -> bool:
    """Whether a payload meets all conditions; what a store's own filter must agree with."""
    return all(
        any(_equal(element, value) for element in _elements(payload, key) for value in values)
        for key, values in conditions.items()
    )


def path_of_key(key: str) -> tuple[str, ...]:
    """Where in a payload a filter's key is: one key, or ``metadata`` and one below."""
    inner = metadata_key(key)
    return ("metadata", inner) if inner else (key,)


def _condition_problem(key: str, values: list[Any]) -> str:
    if not all(isinstance(value, Scalar) for value in values):
        return "only strings, numbers and truth values can be compared"
    try:
        json_ready({key: values})
    except ValueError as error:
        return str(error)
    return ""


def metadata_key(key: str) -> str:
    """The key of a document's metadata that a filter's key names; "" when it names none."""
    return key[len(_METADATA) :] if key.startswith(_METADATA) else ""


def _elements(payload: Payload, key: str) -> Sequence[object]:
    value: object = payload
    for part in path_of_key(key):
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, list) else (value,)


def _equal(stored: object, wanted: Scalar) -> bool:
    if isinstance(stored, bool) or isinstance(wanted, bool):
        return stored is wanted
    if isinstance(wanted, str) or not isinstance(stored, int | float):
        return isinstance(stored, str) and stored == wanted
    if isinstance(wanted, int) and abs(wanted) >= EXACT_FLOAT:
        return isinstance(stored, int) and stored == wanted
    return float(stored) == wanted


def _refuse_values(payloads: Sequence[Payload]) -> None:
    """Look at every value, level by level; loops in C over many payloads at once."""
    level: Sequence[Sequence[Any]] = [payloads] if payloads else []
    for _ in range(MAX_PAYLOAD_DEPTH):
        columns = [column for nodes in level for column in _columns(nodes)]
        level = [nodes for column in columns for nodes in _checked_containers(column)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_PAYLOAD_DEPTH} levels")


def _columns(nodes: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """The values of containers of one type.

    Where many objects have as many keys each, the values at one place are mostly of one type, and
    need not be sorted by it one by one; that takes a third of the time.
    """
    if type(nodes[0]) is not dict:
        return [list(chain.from_iterable(nodes))]
    values = map(dict.values, nodes)
    if len(nodes) >= _MANY and len(set(map(len, nodes))) == 1:
        return zip(*values, strict=True)
    return [list(chain.from_iterable(values))]


def _checked_containers(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The containers among values, by type; what cannot be given back as it was is refused."""
    kinds = set(map(type, values))
    foreign = kinds - _SCALARS - _CONTAINERS
    if foreign:
        raise ValueError(f"it holds a {min(kind.__name__ for kind in foreign)}")
    for kind in kinds & _LOOKED_AT:
        some = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
        if kind is float:
            # orjson would write null for them.
            if not all(map(math.isfinite, some)):
                raise ValueError("it holds NaN or infinity")
        elif kind is int:
            if min(some) not in _INTEGERS or max(some) not in _INTEGERS:
                raise ValueError("it holds an integer that does not fit 64 bits with a sign")
        else:
            yield some
