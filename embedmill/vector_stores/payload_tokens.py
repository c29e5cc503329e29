"""Payload values as tokens: equality on any value, for stores that compare only plain texts.

A token is the JSON text of ``[key, value]``, or a hash of it where that is long: it begins and ends
with a character that no store trims, folds or takes for a stop word.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import orjson

from embedmill.payload import EXACT_FLOAT, Scalar

# Longer tokens are hashed: a text would be there twice in full.
_LONGEST_TOKEN = 100


def tokens_of(key: str, value: object) -> Iterator[str]:
    """Tokens of a payload's value, one for each element of a list; null and objects have none."""
    for one in value if isinstance(value, list | tuple) else (value,):
        if isinstance(one, bool | str):
            yield _token(key, one)
        elif isinstance(one, int | float):
            yield _token(key, float(one))
            if isinstance(one, int) and abs(one) >= EXACT_FLOAT:
                yield _token(key, one)


def wanted_token(key: str, value: Scalar) -> str:
    """The token that a payload has when its value under ``key`` equals ``value``."""
    exact = isinstance(value, bool | str) or abs(value) >= EXACT_FLOAT
    return _token(key, value if exact else float(value))


def _token(key: str, value: Scalar) -> str:
    if isinstance(value, float):
        # Minus zero equals zero.
        value += 0.0
    text = orjson.dumps([key, value])
    if len(text) > _LONGEST_TOKEN:
        return "#" + blake2b(text, digest_size=16).hexdigest()
    return text.decode()
