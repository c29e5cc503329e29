"""The fake Qdrant server's filters: paths of payload keys, conditions, and which need an index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from embedmill.testing.qdrant_fake_replies import ServerError

Path = tuple[str, ...]
_PART = re.compile(r'"([^"\\]+)"|([\w-]+)')
_MATCHES = frozenset({"value", "any", "text"})


def parsed_path(text: object) -> Path:
    """A path's keys: ``a.b`` are two, ``"a.b"`` is one.

    Raises:
        ServerError: it is no path.
    """
    keys, at = [], 0
    while isinstance(text, str) and at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        keys.append(part[1] or part[2])
        at = part.end()
        if at == len(text):
            return tuple(keys)
        if text[at] != ".":
            break
        at += 1
    raise ServerError(400, f"Format error in JSON body: Invalid json path: '{text}'")


def shown_path(path: Path) -> str:
    """A path as the server writes it."""
    return ".".join(key if re.fullmatch(r"[\w-]+", key) else f'"{key}"' for key in path)


def matches(payload: Mapping[str, Any], condition: Any) -> bool:  # noqa: ANN401, off the wire
    """Whether a payload meets a filter or a single condition.

    Raises:
        ServerError: it is no condition that the fake knows.
    """
    if not isinstance(condition, dict):
        raise ServerError(400, "Format error in JSON body: data did not match any condition")
    if "key" in condition:
        path = parsed_path(condition["key"])
        return any(_meets(value, condition) for value in _values(payload, path))
    unknown = set(condition) - {"must", "should", "must_not"}
    if unknown:
        raise ServerError(400, f"Format error in JSON body: unknown field `{min(unknown)}`")
    return (
        all(matches(payload, part) for part in _parts(condition, "must"))
        # An empty or absent list of alternatives asks for nothing, as in the real server.
        and (
            not _parts(condition, "should")
            or any(matches(payload, part) for part in _parts(condition, "should"))
        )
        and not any(matches(payload, part) for part in _parts(condition, "must_not"))
    )


def needed_indexes(condition: Any) -> Iterator[tuple[Path, frozenset[str]]]:  # noqa: ANN401, off the wire
    """Every path that is filtered on, and the types of index of which it needs one."""
    if not isinstance(condition, dict):
        return
    if "key" in condition:
        yield parsed_path(condition["key"]), _index_types(condition)
        return
    for kind in ("must", "should", "must_not"):
        for part in _parts(condition, kind):
            yield from needed_indexes(part)


def _parts(condition: dict[str, Any], kind: str) -> list[Any]:
    found = condition.get(kind)
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def _index_types(condition: dict[str, Any]) -> frozenset[str]:
    if condition.get("range") is not None:
        return frozenset({"integer", "float"})
    match = condition.get("match") or {}
    values = match.get("any") or [match.get("value")]
    if isinstance(values[0], bool):
        return frozenset({"bool"})
    return frozenset({"integer"} if isinstance(values[0], int) else {"keyword", "uuid"})


def _values(payload: Any, path: Path) -> Iterator[Any]:  # noqa: ANN401, any JSON
    value = payload
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return
        value = value[key]
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _meets(value: Any, condition: dict[str, Any]) -> bool:  # noqa: ANN401, any JSON
    match, bounds = condition.get("match"), condition.get("range")
    if isinstance(match, dict):
        if set(match) - _MATCHES:
            raise ServerError(400, "Format error in JSON body: data did not match any `Match`")
        wanted = match["any"] if "any" in match else [match.get("value")]
        return any(type(value) is type(one) and value == one for one in wanted)
    if isinstance(bounds, dict):
        # Integers of 64 bits are compared as doubles, and truth values not at all.
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low, high = bounds.get("gte"), bounds.get("lte")
        number = float(value)
        return (low is None or number >= low) and (high is None or number <= high)
    raise ServerError(
        422, "Validation error in JSON body: at least one field condition must be set"
    )
