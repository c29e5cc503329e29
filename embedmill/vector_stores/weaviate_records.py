"""Payloads as Weaviate's properties and back, and records as the client's own messages.

Properties have types that never change, no null, no key that is not a GraphQL name, and numbers
that travel as float64. So a payload is laid out like this:

===========================================  ==================================================
in the payload                               in the object
===========================================  ==================================================
``doc_id``, ``text``: a string without NUL;  under their own names
``chunk_index``: a whole number within
2**53
everything else                              JSON text under ``embedmill_rest``, an object of the
                                             same shape as the payload that holds only these
each value that a filter may ask for, of     tokens under ``embedmill_find``, see
the payload and of its ``metadata``          :mod:`embedmill.vector_stores.payload_tokens`
metadata keys of ``store.properties``        a copy under ``metadata_KEY``, where the value is of
                                             the property's type
===========================================  ==================================================

What is read back comes from the first two lines alone: no value is changed on its way, whatever its
type, and keys need no renaming.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import orjson
from weaviate.proto.v1 import base_pb2, batch_pb2

from embedmill.payload import EXACT_FLOAT, Filter, Payload, conditions_of
from embedmill.vector_store import VectorBatch
from embedmill.vector_stores.payload_tokens import tokens_of, wanted_token
from embedmill.vector_stores.weaviate_schema import (
    CHUNK_INDEX,
    DOC_ID,
    FIND,
    REST,
    TEXT,
    VECTOR,
    Collection,
)
from embedmill.weaviate_settings import PropertyType

# What a payload is read back from.
READ = [DOC_ID, CHUNK_INDEX, TEXT, REST]
# What goes under its own name, where it is of this type.
_OWN: dict[str, PropertyType] = {DOC_ID: "keyword", CHUNK_INDEX: "int", TEXT: "text"}
_METADATA = "metadata"
# Longer ones are no words to filter on, and terms of an index are at most 64 KB.
_LONGEST_TERM = 1000
_VECTOR_TYPE = base_pb2.Vectors.VECTOR_TYPE_SINGLE_FP32


def objects_of(
    class_name: str, collection: Collection, batch: VectorBatch, tenant: str | None = None
) -> Iterator[batch_pb2.BatchObject]:
    """Records as messages of the client's own protocol, in order.

    The client's ``insert_many`` makes the same messages; it also repeats what fails for seconds by
    itself, and when all objects are refused it says no more which one for what.
    """
    vectors = np.ascontiguousarray(batch.vectors, dtype="<f4")
    for record, vector, payload in zip(batch.ids, vectors, batch.payloads, strict=True):
        # Filled in place: a message that is handed to another is copied, four times in all.
        made = batch_pb2.BatchObject(uuid=str(record), collection=class_name, tenant=tenant or "")
        _fill(made.properties, properties_of(payload, collection))
        made.vectors.add(name=VECTOR, vector_bytes=vector.tobytes(), type=_VECTOR_TYPE)
        yield made


def payload_of(properties: Mapping[str, Any]) -> Payload:
    """Read a payload back from the properties :data:`READ`."""
    payload: Payload = {key: properties[key] for key in _OWN if properties.get(key) is not None}
    rest = properties.get(REST)
    if rest:
        payload.update(orjson.loads(rest))
    return payload


def wanted_tokens(where: Filter | None) -> list[list[str]]:
    """A filter as lists of tokens: a record meets it when it has one of each list.

    ``metadata.KEY`` means the key of a document's metadata. A list without tokens is never met.
    """
    return [
        [wanted_token(key, value) for value in values]
        for key, values in conditions_of(where).items()
    ]


def tenant_value(payload: Payload, key: str) -> object:
    """The value of a metadata key that decides on the tenant."""
    metadata = payload.get(_METADATA)
    return metadata.get(key) if isinstance(metadata, dict) else None


def properties_of(payload: Payload, collection: Collection) -> dict[str, Any]:
    """Lay a payload out as properties, see the module."""
    properties: dict[str, Any] = {}
    rest = dict(payload)
    for key, kind in _OWN.items():
        if key in rest and _fits(rest[key], kind):
            properties[key] = rest.pop(key)
    if rest:
        properties[REST] = orjson.dumps(rest).decode()
    tokens = _tokens_of(payload)
    if tokens:
        properties[FIND] = tokens
    metadata = payload.get(_METADATA)
    if collection.columns and isinstance(metadata, dict):
        for key, (name, kind) in collection.columns.items():
            value = metadata.get(key)
            if _are_keywords(value) if kind == "keyword[]" else _fits(value, kind):
                properties[name] = value
    return properties


def _fill(message: Any, properties: Mapping[str, Any]) -> None:  # noqa: ANN401, has no types
    fields = message.non_ref_properties.fields
    for name, value in properties.items():
        if isinstance(value, str):
            fields[name].string_value = value
        elif isinstance(value, bool):
            fields[name].bool_value = value
        elif isinstance(value, int | float):
            fields[name].number_value = value
        else:
            message.text_array_properties.add(prop_name=name, values=value)


def _tokens_of(payload: Payload) -> list[str]:
    tokens: list[str] = []
    for key, value in payload.items():
        if not key.startswith(f"{_METADATA}."):
            tokens += tokens_of(key, value)
    metadata = payload.get(_METADATA)
    if isinstance(metadata, dict):
        for key, value in metadata.items():
            tokens += tokens_of(f"{_METADATA}.{key}", value)
    # A list may have a value twice.
    return list(dict.fromkeys(tokens))


def _are_keywords(value: object) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(_fits(one, "keyword") for one in value)


def _is_exact(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < EXACT_FLOAT


def _fits(value: object, kind: PropertyType) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return _is_exact(value)
    if kind == "number":
        return _is_exact(value) or (isinstance(value, float) and math.isfinite(value))
    if not isinstance(value, str) or "\0" in value or kind == "keyword[]":
        return False
    if kind == "date":
        return _is_instant(value)
    return kind == "text" or len(value) <= _LONGEST_TERM


def _is_instant(text: str) -> bool:
    """Whether it is a date with time and zone, RFC 3339; the server takes nothing else."""
    if len(text) < 20 or text[10] not in "Tt":
        return False
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False
