"""Filters of the fake Weaviate: an inverted index of terms, with all that tokenisation does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from weaviate.proto.v1 import base_pb2

from embedmill.testing.weaviate_fake_state import FakeClass, FakeObject, ServerError

# Some of the stop words of the preset "en", which is what a collection gets.
_STOP_WORDS = frozenset({"a", "an", "and", "is", "of", "the", "to", "in", "it", "this"})
_TEXTS = ("text", "text[]")
Test = Callable[[str, FakeObject], bool]


def terms_of(text: str, tokenization: str) -> list[str]:
    """The terms that a text is indexed by.

    ``field`` is the whole text without the white space around it, ``word`` the letters and digits
    in small letters, less the stop words.
    """
    if tokenization == "field":
        return [text.strip()]
    words = re.findall(r"[^\W_]+", text.lower())
    return [word for word in words if word not in _STOP_WORDS]


def test_of(found: FakeClass, filters: base_pb2.Filters) -> Test:
    """What a filter lets through.

    Raises:
        ServerError: the server would refuse it.
    """
    operators = base_pb2.Filters
    if filters.operator in (operators.OPERATOR_AND, operators.OPERATOR_OR):
        tests = [test_of(found, one) for one in filters.filters]
        every = filters.operator == operators.OPERATOR_AND
        return lambda record, stored: (all if every else any)(t(record, stored) for t in tests)
    name = filters.target.property or (filters.on[0] if filters.on else "")
    if filters.operator not in (operators.OPERATOR_EQUAL, operators.OPERATOR_CONTAINS_ANY):
        raise ServerError(f"unknown filter operator {filters.operator}")
    kind, values = _values_of(filters)
    if name == "_id":
        return _id_test(kind, values)
    return _property_test(found, name, kind, values)


def _values_of(filters: base_pb2.Filters) -> tuple[str, Sequence[Any]]:
    field = filters.WhichOneof("test_value")
    if field is None:
        raise ServerError("unknown value type <nil>")
    value = getattr(filters, field)
    if field.endswith("_array"):
        return field.removeprefix("value_").removesuffix("_array"), list(value.values)
    return field.removeprefix("value_"), [value]


def _id_test(kind: str, values: Sequence[Any]) -> Test:
    if kind != "text":
        raise ServerError(f'invalid filter: data type filter cannot use "{kind}" on _id')
    try:
        wanted = {str(UUID(value)) for value in values}
    except ValueError as error:
        raise ServerError(f"invalid filter: invalid UUID: {error}") from error
    return lambda record, _: record in wanted


def _property_test(found: FakeClass, name: str, kind: str, values: Sequence[Any]) -> Test:
    known = found.property(name)
    if known is None:
        raise ServerError(
            f"no such prop with name '{name}' found in class '{found.name}' in the schema. Check "
            "your schema files for which properties in this class are available"
        )
    if not known["indexFilterable"]:
        raise ServerError(
            f"Filtering by property '{name}' requires inverted index. Is `indexFilterable` option "
            "of this property enabled?"
        )
    data_type = known["dataType"][0].removesuffix("[]")
    if kind != data_type.replace("date", "text").replace("uuid", "text"):
        raise ServerError(
            f'invalid filter: data type filter cannot use "value{kind.title()}" on type '
            f'"{data_type}", use "value{data_type.title()}" instead'
        )
    if known["dataType"][0] not in _TEXTS:
        return lambda _, stored: any(one in values for one in _elements(stored, name))
    wanted = [set(terms_of(value, known["tokenization"])) for value in values]
    if not all(wanted):
        raise ServerError("invalid search term, only stopwords provided")

    def text_test(_: str, stored: FakeObject) -> bool:
        terms: set[str] = set()
        for one in _elements(stored, name):
            terms.update(terms_of(one, known["tokenization"]))
        # All terms of one wanted value: nobody asks in which order, or whether there are more.
        return any(value <= terms for value in wanted)

    return text_test


def _elements(stored: FakeObject, name: str) -> Sequence[Any]:
    value = stored.properties.get(name)
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)
