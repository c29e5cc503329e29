"""JSON files that know whether they are whole."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from embedmill.errors import DamagedFileError


def sealed(body: Mapping[str, object]) -> bytes:
    """JSON with a digest of itself, so that a torn or edited file does not pass for a whole one."""
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    seal = blake2b(text, digest_size=8).hexdigest()
    return orjson.dumps({"body": body, "seal": seal}, option=orjson.OPT_SORT_KEYS)


def unsealed(data: bytes, path: str) -> dict[str, Any]:
    """Read what :func:`sealed` wrote.

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
    raise DamagedFileError(
        f"{path} does not read back as what was written",
        hint="restore it from a copy of the workspace",
    )
