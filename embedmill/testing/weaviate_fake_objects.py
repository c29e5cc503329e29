"""Writing objects at the fake Weaviate: what it checks of each, and its auto-schema's traps."""

from __future__ import annotations

import re
import struct
from typing import Any
from uuid import UUID

import numpy as np
from weaviate.proto.v1 import batch_pb2

from embedmill.testing.weaviate_fake_schema import (
    PROPERTY_NAME,
    RESERVED,
    RESERVED_ENDINGS,
)
from embedmill.testing.weaviate_fake_state import FakeClass, FakeObject, FakeState, ServerError

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def put_object(state: FakeState, sent: batch_pb2.BatchObject) -> None:
    """Write one object of a batch, whole.

    Raises:
        ServerError: with the words that the reply has for it.
    """
    # A batch follows aliases, as a search does.
    found = state.get(sent.collection)
    if found.read_only:
        raise ServerError("put object: import into index: store is read-only")
    try:
        record = str(UUID(sent.uuid))
    except ValueError as error:
        raise ServerError(f"invalid UUID length: {len(sent.uuid)}") from error
    objects = found.of_tenant(sent.tenant, create=True)
    properties = _properties_of(sent.properties)
    for name, value in properties.items():
        _check(state, found, name, value)
    vectors = _vectors_of(found, sent)
    for name, vector in vectors.items():
        known = found.dimensions.setdefault(name, len(vector))
        if len(vector) != known:
            raise ServerError(
                f"put object: import into index: new node has a vector with length {len(vector)}. "
                f"Existing nodes have vectors with length {known}"
            )
    queued = state.options.queued_looks > 0
    if queued:
        found.queued_looks = state.options.queued_looks
    objects[record] = FakeObject(properties, vectors, queued, state.options.copy_lag)


def _properties_of(sent: batch_pb2.BatchObject.Properties) -> dict[str, Any]:
    # All numbers of a struct are float64: what was beyond 2**53 has been rounded by now.
    properties: dict[str, Any] = {}
    for name, value in sent.non_ref_properties.fields.items():
        kind = value.WhichOneof("kind")
        if kind in {"string_value", "number_value", "bool_value"}:
            properties[name] = getattr(value, kind)
    for texts in sent.text_array_properties:
        properties[texts.prop_name] = list(texts.values)
    for booleans in sent.boolean_array_properties:
        properties[booleans.prop_name] = list(booleans.values)
    for integers in sent.int_array_properties:
        properties[integers.prop_name] = list(integers.values)
    for numbers in sent.number_array_properties:
        count = len(numbers.values_bytes) // 8
        properties[numbers.prop_name] = list(struct.unpack(f"<{count}d", numbers.values_bytes))
    properties.update((name, []) for name in sent.empty_list_props)
    return properties


def _vectors_of(found: FakeClass, sent: batch_pb2.BatchObject) -> dict[str, Any]:
    named = found.definition.get("vectorConfig")
    given = {one.name: one.vector_bytes for one in sent.vectors}
    if sent.vector_bytes:
        if named is not None and set(named) != {"default"}:
            raise ServerError(f"class {found.name} is configured with named vectors")
        given["default"] = sent.vector_bytes
    unknown = sorted(given.keys() - (named if named is not None else {"default"}))
    if unknown:
        raise ServerError(f"class {found.name} does not have configuration for vector {unknown[0]}")
    # NaN and infinity pass: nobody looks at them here.
    return {name: np.frombuffer(content, dtype="<f4") for name, content in given.items()}


def _check(state: FakeState, found: FakeClass, name: str, value: object) -> None:
    known = found.property(name)
    if known is None:
        if name in RESERVED or name.endswith(RESERVED_ENDINGS):
            raise ServerError(f"'{name}' is a reserved property name")
        if not PROPERTY_NAME.fullmatch(name):
            raise ServerError(f"'{name}' is not a valid property name")
        if not state.options.auto_schema:
            raise ServerError(
                f"no such prop with name '{name}' found in class '{found.name}' in the schema"
            )
        known = _guessed(name, value)
        found.definition["properties"].append(known)
    data_type = known["dataType"][0]
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) != data_type.endswith("[]"):
        raise ServerError(f"invalid {data_type} property '{name}' on class '{found.name}'")
    for one in values:
        _check_scalar(found, name, data_type.removesuffix("[]"), one)


def _check_scalar(found: FakeClass, name: str, data_type: str, value: object) -> None:
    good = {
        "text": isinstance(value, str),
        "int": isinstance(value, int | float) and float(value).is_integer(),
        "number": isinstance(value, int | float),
        "boolean": isinstance(value, bool),
        "date": isinstance(value, str) and _INSTANT.fullmatch(value) is not None,
        "uuid": isinstance(value, str) and _is_uuid(value),
    }
    if isinstance(value, bool) and data_type != "boolean":
        good[data_type] = False
    if not good.get(data_type, True):
        raise ServerError(
            f"invalid {data_type} property '{name}' on class '{found.name}': not a {data_type}, "
            f"but {type(value).__name__}"
        )


def _guessed(name: str, value: object) -> dict[str, Any]:
    """The type of a property that was not declared: as its first value looks, for ever."""
    many = isinstance(value, list)
    one: object = (value[0] if value else "") if isinstance(value, list) else value
    kind = "text"
    if isinstance(one, bool):
        kind = "boolean"
    elif isinstance(one, int | float):
        kind = "number"
    elif isinstance(one, str) and _is_uuid(one):
        kind = "uuid"
    elif isinstance(one, str) and _INSTANT.fullmatch(one):
        kind = "date"
    made = {
        "name": name,
        "description": "This property was generated by Weaviate's auto-schema feature",
        "dataType": [f"{kind}[]" if many else kind],
        "indexFilterable": True,
        "indexSearchable": kind == "text",
    }
    return {**made, "tokenization": "word"} if kind == "text" else made


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
