"""Payload values as tokens: equality on any value, for stores that compare only plain texts.

A token is the JSON text of ``[key, value]``, or a hash of it where that is long: it begins and ends
with a character that no store trims, folds or takes for a stop word.
"""

from __future__ import annotations

from hashlib import blake2b

import orjson

from embedmill.payload import EXACT_FLOAT, Scalar

# Longer tokens are hashed: a text would be there twice in full.
_LONGEST_TOKEN = 100
_SCALARS = frozenset({str, bool, int, float})


def tokens_of(key: str, value: object) -> list[str]:
    """Tokens of a payload's value, one for each element of a list; null and objects have none."""
    if isinstance(value, str | bool):
        return [_token(key, value)]
    if isinstance(value, int | float):
        tokens = [_token(key, float(value))]
        if isinstance(value, int) and abs(value) >= EXACT_FLOAT:
            tokens.append(_token(key, value))
        return tokens
    if isinstance(value, list | tuple):
        return [token for one in value if type(one) in _SCALARS for token in tokens_of(key, one)]
    return []


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
