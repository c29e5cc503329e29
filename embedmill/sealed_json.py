"""JSON files that know whether they are whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import blake2b
from typing import Any, get_type_hints

import orjson

from embedmill.errors import DamagedFileError, NewerFormatError


def sealed(body: Mapping[str, object]) -> bytes:
    """JSON with a digest of itself, so that a torn or edited file does not pass for a whole one."""
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    seal = blake2b(text, digest_size=8).hexdigest()
    return orjson.dumps({"body": body, "seal": seal}, option=orjson.OPT_SORT_KEYS)


def unsealed(
    data: bytes, path: str, *, remedy: str = "restore it from a copy of the workspace"
) -> dict[str, Any]:
    """Read what :func:`sealed` wrote.

    Args:
        data: the file.
        path: where it is.
        remedy: what a person does about a damaged one.

    Raises:
        DamagedFileError: torn or edited.
    """
    try:
        record = orjson.loads(data)
        body: dict[str, Any] = record["body"]
        text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        if record["seal"] == blake2b(text, digest_size=8).hexdigest():
            return body
    except (orjson.JSONDecodeError, KeyError, TypeError):
        pass
    raise DamagedFileError(f"{path} does not read back as what was written", hint=remedy)


def newer_format(path: str, what: str) -> NewerFormatError:
    """The error that says that a file has something which this embedmill does not know."""
    return NewerFormatError(
        f"{path} has {what}, which this embedmill does not know: a newer one wrote it",
        hint="use the embedmill that wrote it, or a newer one",
    )


def require_known(kind: type, record: Mapping[str, object], path: str) -> None:
    """Refuse what a newer embedmill wrote: keys that a dataclass, or one within it, does not have.

    Raises:
        NewerFormatError: there are such keys.
    """
    types = _types_of(kind)
    unknown = sorted(record.keys() - types.keys())
    if unknown:
        raise newer_format(path, ", ".join(unknown))
    for name, value in record.items():
        if is_dataclass(types[name]) and isinstance(value, dict):
            require_known(types[name], value, path)


@cache
def _types_of(kind: type) -> dict[str, Any]:
    """Names and types of a dataclass's fields; resolving them compiles every annotation anew."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in fields(kind)}
