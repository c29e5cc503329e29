"""Our filters in the words of Qdrant's embedded engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import qdrant_edge

from embedmill.payload import EXACT_FLOAT, Filter, Scalar, conditions_of
from embedmill.vector_stores.qdrant_paths import path_of


def filter_of(where: Filter | None) -> qdrant_edge.Filter | None:
    """A filter in the engine's words; None when everything matches.

    Raises:
        RefusedError: a key or a value cannot be compared.
    """
    conditions = conditions_of(where)
    if not conditions:
        return None
    return qdrant_edge.Filter(must=[_any_of(*item) for item in conditions.items()])


def _any_of(key: str, values: Sequence[Scalar]) -> qdrant_edge.Filter:
    path = path_of(key)
    texts = [value for value in values if isinstance(value, str)]
    # An empty list of texts matches nothing, and an empty `should` would match everything.
    tests = [_on(path, match=qdrant_edge.MatchAny(texts))]
    tests += [_equals(path, value) for value in values if not isinstance(value, str)]
    return qdrant_edge.Filter(should=list(tests))


def _equals(path: str, value: float) -> qdrant_edge.FieldCondition:
    if isinstance(value, bool):
        # A Python bool would be taken for the integers 0 and 1; numpy's is not an integer.
        truth: Any = np.bool_(value)
        return _on(path, match=qdrant_edge.MatchValue(truth))
    if isinstance(value, int) and abs(value) >= EXACT_FLOAT:
        return _on(path, match=qdrant_edge.MatchValue(value))
    # Matching an integer would miss 1.0, and matching a float is not offered.
    return _on(path, range=qdrant_edge.RangeFloat(gte=value, lte=value))


def _on(path: str, **test: Any) -> qdrant_edge.FieldCondition:  # noqa: ANN401 (passed on)
    return qdrant_edge.FieldCondition(path, **test)
