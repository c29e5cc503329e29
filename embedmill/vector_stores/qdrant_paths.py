"""Paths of payload keys, as Qdrant's server and its embedded engine write them."""

from __future__ import annotations

import re

from embedmill.errors import RefusedError
from embedmill.payload import path_of_key

# What may stand in a path without quotes; the server writes paths back like this.
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def path_of(key: str) -> str:
    """The path of a filter's key.

    Raises:
        RefusedError: the key has a character that no path can hold.
    """
    return ".".join(_quoted(part, key) for part in path_of_key(key))


def _quoted(part: str, key: str) -> str:
    if '"' in part or "\\" in part or not part:
        raise RefusedError(f"this store cannot filter on the key {key!r}", code="filter")
    # In quotes a key is one name, whatever dots and brackets are in it.
    return part if _PLAIN_KEY.fullmatch(part) else f'"{part}"'
