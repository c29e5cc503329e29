"""Metadata filters as Pinecone documents them: what it refuses, and what matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from embedmill.testing.pinecone_fake_replies import refusal

_MAX_IN = 10_000
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "$gt": lambda stored, wanted: stored > wanted,
    "$gte": lambda stored, wanted: stored >= wanted,
    "$lt": lambda stored, wanted: stored < wanted,
    "$lte": lambda stored, wanted: stored <= wanted,
}


def meets(metadata: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Whether metadata meets a filter that passed :func:`check_filter`."""
    for key, wanted in condition.items():
        if key == "$and":
            met = all(meets(metadata, one) for one in wanted)
        elif key == "$or":
            met = any(meets(metadata, one) for one in wanted)
        else:
            met = all(_field_meets(metadata, key, *item) for item in wanted.items())
        if not met:
            return False
    return True


def check_filter(condition: object) -> None:
    """Refuse what is no filter.

    Raises:
        ApiError: with status 400.
    """
    if not isinstance(condition, dict):
        raise refusal("Filter must be an object")
    for key, wanted in condition.items():
        if key in {"$and", "$or"}:
            if not isinstance(wanted, list) or not wanted:
                raise refusal(f"{key} must be a non-empty array of objects")
            for one in wanted:
                check_filter(one)
        elif key.startswith("$"):
            raise refusal(f"{key} is not a valid operator at the top level")
        else:
            _check_field(key, wanted)


def _check_field(key: str, wanted: object) -> None:
    if not isinstance(wanted, dict) or not wanted:
        raise refusal(f"the condition on {key!r} must be an object with operators")
    for operator, value in wanted.items():
        if operator in {"$in", "$nin"}:
            _check_list(operator, value)
        else:
            _check_operand(operator, value)


def _check_operand(operator: str, value: object) -> None:
    if operator in {"$eq", "$ne"}:
        fine = isinstance(value, str | int | float)
    elif operator in _COMPARED:
        fine = isinstance(value, int | float) and not isinstance(value, bool)
    elif operator == "$exists":
        fine = isinstance(value, bool)
    else:
        raise refusal(f"{operator} is not a valid operator")
    if not fine:
        raise refusal(f"{operator} cannot be compared with such a value")


def _check_list(operator: str, values: object) -> None:
    if not isinstance(values, list) or not values:
        raise refusal(f"the value of {operator} must be a non-empty array")
    if len(values) > _MAX_IN:
        raise refusal(f"{operator} takes at most {_MAX_IN} values")
    # Booleans are documented for $eq and $ne alone.
    if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in values):
        raise refusal(f"the values of {operator} must be numbers or strings")


def _field_meets(metadata: Mapping[str, Any], key: str, operator: str, wanted: Any) -> bool:  # noqa: ANN401 (JSON)
    if operator == "$exists":
        return (key in metadata) is bool(wanted)
    stored = metadata.get(key)
    elements = stored if isinstance(stored, list) else [stored]
    if operator in {"$eq", "$in"}:
        values = wanted if operator == "$in" else [wanted]
        return any(_equal(one, value) for one in elements for value in values)
    if operator in {"$ne", "$nin"}:
        values = wanted if operator == "$nin" else [wanted]
        return not any(_equal(one, value) for one in elements for value in values)
    if isinstance(stored, bool) or not isinstance(stored, int | float):
        return False
    return _COMPARED[operator](float(stored), float(wanted))


def _equal(stored: object, wanted: object) -> bool:
    if isinstance(stored, bool) or isinstance(wanted, bool):
        return stored is wanted
    if isinstance(stored, int | float) and isinstance(wanted, int | float):
        return float(stored) == float(wanted)
    return isinstance(stored, str) and stored == wanted
