"""Payloads as Pinecone's metadata and back: a table that loses nothing.

Pinecone takes a flat object of strings, numbers (float64), truth values and lists of strings: no
null, no nesting, no list of anything else. So a payload is laid out like this:

==========================================  ===============================================
in the payload                              in the metadata
==========================================  ===============================================
string, truth value, fraction, whole        under its own key
number within 2**53, list of strings
object                                      one key per leaf, joined by dots: ``metadata.lang``
null, whole number beyond 2**53, ``3.0``,   JSON text under ``embedmill_rest``, an object of the
empty or mixed list, empty object, text     same shape as the payload that holds only these;
with NUL, any value under a key that is     what a filter may ask for is repeated as tokens
empty, holds a dot or NUL, or begins with   under ``embedmill_find``
``$``, ``_`` or ``embedmill_``
==========================================  ===============================================

A number without a fraction is read as a whole number, since ``3.0`` is in the rest. Tokens are
those of :mod:`embedmill.vector_stores.payload_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import orjson

from embedmill.errors import RefusedError
from embedmill.payload import EXACT_FLOAT, Filter, Payload, Scalar, conditions_of, path_of_key
from embedmill.vector_stores.payload_tokens import tokens_of, wanted_token

Metadata: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]
# Of a payload: the key in the metadata, the path, whether that key may be plain, and whether a
# filter can ask for it.
Key: TypeAlias = tuple[str, Path, bool, bool]

REST = "embedmill_rest"
FIND = "embedmill_find"
# Of one record; Pinecone's operation limits say 40 KB, its refusals 40,960 bytes. How a server
# counts is not said; this counts the JSON text.
METADATA_BYTES = 40_000
# Values of one $in; Pinecone's operation limits.
MAX_IN = 10_000
_KEYS_REMEMBERED = 256
# "_values" and "_sparse_values" are Pinecone's own names.
_RESERVED = ("$", "_", "embedmill_")


def metadata_of(payload: Payload) -> Metadata:
    """Lay a payload out as metadata, see the module.

    Args:
        payload: passed :func:`embedmill.payload.json_ready`.
    """
    metadata: Metadata = {}
    odd: list[tuple[Key, Any]] = []
    _lay_out(payload, (), metadata, odd)
    if not odd:
        return metadata
    if len(odd) == 1 and odd[0][1] == []:
        # A chunk without headings, as most of many texts are, has just this.
        metadata[REST] = _rest_with_empty_list(odd[0][0][1])
        return metadata
    rest: dict[str, Any] = {}
    tokens: list[str] = []
    for (name, path, _, askable), value in odd:
        _put(rest, path, value)
        if askable:
            tokens += tokens_of(name, value)
    metadata[REST] = orjson.dumps(rest).decode()
    if tokens:
        metadata[FIND] = list(dict.fromkeys(tokens))
    return metadata


@lru_cache(maxsize=_KEYS_REMEMBERED)
def _rest_with_empty_list(path: Path) -> str:
    rest: dict[str, Any] = {}
    _put(rest, path, [])
    return orjson.dumps(rest).decode()


def payload_of(metadata: Mapping[str, Any]) -> Payload:
    """Read back what :func:`metadata_of` laid out; numbers may have come back as floats."""
    payload: Payload = {}
    for key, value in metadata.items():
        if key not in {REST, FIND}:
            _put(payload, tuple(key.split(".")), _whole(value))
    if REST in metadata:
        _merge(payload, orjson.loads(metadata[REST]))
    return payload


def filter_of(where: Filter | None) -> dict[str, Any] | None:
    """A filter in Pinecone's language; None when it lets everything through.

    Raises:
        RefusedError: a value cannot be compared, or there are too many.
    """
    clauses = [_any_of(key, values) for key, values in conditions_of(where).items()]
    if not clauses:
        return None
    return clauses[0] if len(clauses) == 1 else {"$and": clauses}


def _lay_out(
    value: Mapping[str, Any], path: Path, metadata: Metadata, odd: list[tuple[Key, Any]]
) -> None:
    """Put the leaves that may stand under a key of their own into ``metadata``, others in ``odd``.

    Types are exact, see :func:`embedmill.payload.json_ready`: asking for them, and for the most
    frequent first, takes half of what a list of leaves and ``isinstance`` take.
    """
    keys = _keys_at(path)
    for key, inner in value.items():
        kind = type(inner)
        known = keys[key]
        name, here, plain, _ = known
        if (kind is str and plain and "\0" not in inner) or (
            kind is int and plain and -EXACT_FLOAT < inner < EXACT_FLOAT
        ):
            metadata[name] = inner
        elif kind is dict and inner:
            _lay_out(inner, here, metadata, odd)
        elif plain and _is_native(kind, inner):
            metadata[name] = list(inner) if kind is tuple else inner
        else:
            odd.append((known, inner))


class _Keys(dict[str, Key]):
    """What is known of the keys at one path of payloads; the first so many are remembered."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, key: str) -> Key:
        path = (*self._path, key)
        name = ".".join(path)
        known = name, path, _is_plain(path), path_of_key(name) == path
        if len(self) < _KEYS_REMEMBERED:
            self[key] = known
        return known


# Records of one index have the same few keys, in the same few objects.
@lru_cache(maxsize=64)
def _keys_at(path: Path) -> _Keys:
    return _Keys(path)


def _is_plain(path: Path) -> bool:
    # Only the first decides whether the joined key meets a reserved name.
    return not path[0].startswith(_RESERVED) and all(
        key and "." not in key and "\0" not in key for key in path
    )


def _is_native(kind: type, value: Any) -> bool:  # noqa: ANN401 (a leaf of JSON)
    """Whether a value that is neither text nor whole number means the same as metadata."""
    if kind is float:
        return not float(value).is_integer()
    if kind is list or kind is tuple:
        # An empty list is one of nothing in particular; whether it comes back is not said.
        return bool(value) and all(type(one) is str and "\0" not in one for one in value)
    return kind is bool


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _put(target: dict[str, Any], path: Path, value: object) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = value


def _merge(target: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        known = target.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            target[key] = value


def _any_of(key: str, values: list[Scalar]) -> dict[str, Any]:
    if len(values) > MAX_IN:
        raise RefusedError(
            f"the filter on {key!r} has {len(values):,} values, Pinecone takes {MAX_IN:,}",
            code="filter",
        )
    clauses: list[dict[str, Any]] = []
    if _is_plain(path_of_key(key)):
        truths = {value for value in values if isinstance(value, bool)}
        numbers = [v for v in values if not isinstance(v, bool | str) and abs(v) < EXACT_FLOAT]
        texts = [value for value in values if isinstance(value, str)]
        clauses += [{key: {"$eq": truth}} for truth in sorted(truths)]
        clauses += [{key: {"$in": some}} for some in (numbers, texts) if some]
    # No token is empty: this one alone matches nothing, as an empty list of values should.
    tokens = [wanted_token(key, value) for value in values] or [""]
    clauses.append({FIND: {"$in": tokens}})
    return clauses[0] if len(clauses) == 1 else {"$or": clauses}
