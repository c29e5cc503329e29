"""Our filters in Qdrant's words."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from embedmill.payload import EXACT_FLOAT, Filter, Scalar, conditions_of
from embedmill.vector_stores.qdrant_paths import path_of


def filter_of(where: Filter | None) -> models.Filter | None:
    """A filter in the server's words; None when everything matches.

    Raises:
        RefusedError: a key or a value cannot be compared.
    """
    conditions = conditions_of(where)
    if not conditions:
        return None
    return models.Filter(must=[_any_of(path_of(key), vs) for key, vs in conditions.items()])


def matches_nothing(where: Filter | None) -> bool:
    """Whether a key has no allowed value at all: the server would take that for any."""
    return any(not values for values in conditions_of(where).values())


def _any_of(path: str, values: Sequence[Scalar]) -> models.Filter:
    texts = [value for value in values if isinstance(value, str)]
    tests = [_equals(path, value) for value in values if not isinstance(value, str)]
    if texts:
        tests.append(models.FieldCondition(key=path, match=models.MatchAny(any=texts)))
    return models.Filter(should=list(tests))


def _equals(path: str, value: float) -> models.FieldCondition:
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= EXACT_FLOAT):
        return models.FieldCondition(key=path, match=models.MatchValue(value=value))
    # Matching an integer would miss 1.0, and matching a float is not offered.
    number = float(value)
    return models.FieldCondition(key=path, range=models.Range(gte=number, lte=number))
