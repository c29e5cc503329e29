"""Collections of Weaviate: what they are made of, and what one that exists was made for.

All properties are declared: the server would otherwise take their types from the first object that
has them, and refuse or twist what comes later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import orjson

from embedmill.errors import RefusedError
from embedmill.recipe import Metric
from embedmill.vector_store import CollectionSpec
from embedmill.weaviate_settings import (
    PropertyType,
    WeaviateSettings,
    property_field,
    property_name,
)

# Vectors are named; this is the name that clients take where none is given.
VECTOR = "default"
DOC_ID = "doc_id"
CHUNK_INDEX = "chunk_index"
TEXT = "text"
REST = "embedmill_rest"
FIND = "embedmill_find"

_HINT = "give the index another name, or drop this collection first"
_DISTANCES: dict[Metric, str] = {"cosine": "cosine", "dot": "dot", "euclid": "l2-squared"}
_TYPES: dict[PropertyType, tuple[str, str | None]] = {
    "keyword": ("text", "field"),
    "keyword[]": ("text[]", "field"),
    "text": ("text", "word"),
    "int": ("int", None),
    "number": ("number", None),
    "bool": ("boolean", None),
    "date": ("date", None),
}
_MADE_BY = "Made by embedmill. "


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as the server describes it.

    Attributes:
        name: of ours.
        spec: that it was made for.
        tenant_key: metadata key whose values are its tenants; None: it has none.
        columns: property and type of each metadata key that has one.
        copies: of each object.
    """

    name: str
    spec: CollectionSpec
    tenant_key: str | None = None
    columns: Mapping[str, tuple[str, PropertyType]] = field(default_factory=dict)
    copies: int = 1


def new_class(
    settings: WeaviateSettings, class_name: str, collection: str, spec: CollectionSpec
) -> dict[str, Any]:
    """The definition of a collection, as the server's REST interface takes it."""
    columns = dict(property_field(entry) for entry in settings.properties)
    made: dict[str, Any] = {
        "class": class_name,
        "description": _description(settings, collection, spec),
        "properties": [
            _property(DOC_ID, "text", "field"),
            _property(CHUNK_INDEX, "int"),
            _text_property(searchable=settings.searchable_text),
            _property(REST, "text", "field", filterable=False),
            _property(FIND, "text[]", "field"),
            *(column_property(key, kind) for key, kind in columns.items()),
        ],
        "vectorConfig": {
            VECTOR: {
                # No module of the server may ever embed: a missing vector is an error.
                "vectorizer": {"none": {}},
                "vectorIndexType": settings.index_type,
                "vectorIndexConfig": _vector_index(settings, spec),
            }
        },
        "multiTenancyConfig": {
            "enabled": settings.tenant_key is not None,
            "autoTenantCreation": settings.tenant_key is not None,
            "autoTenantActivation": settings.tenant_key is not None,
        },
    }
    if settings.shards is not None and settings.tenant_key is None:
        made["shardingConfig"] = {"desiredCount": settings.shards}
    if settings.replication_factor is not None:
        # Without a rule a copy that missed a deletion would bring the record back.
        rule = "TimeBasedResolution"
        factor = settings.replication_factor
        made["replicationConfig"] = {"factor": factor, "deletionStrategy": rule}
    return made


def column_property(key: str, kind: PropertyType) -> dict[str, Any]:
    """The property of a metadata key; its description has the key as it is."""
    data_type, tokenization = _TYPES[kind]
    made = _property(property_name(key), data_type, tokenization)
    made["indexSearchable"] = kind == "text"
    made["description"] = orjson.dumps({"metadata": key, "type": kind}).decode()
    return made


def collection_of(class_name: str, described: Mapping[str, Any]) -> Collection:
    """Read what the server says about a collection, as its REST interface gives it.

    Raises:
        RefusedError: it was not made by us, or its vectors are compared in another way than it was
            made for.
    """
    made_for = _made_for(class_name, described)
    match made_for:
        case {
            "collection": str() as name,
            "dimension": int() as dimension,
            "metric": "cosine" | "dot" | "euclid" as metric,
            "normalised": bool() as normalised,
        }:
            spec = CollectionSpec(dimension, metric, normalised)
        case _:
            raise _foreign(class_name)
    vectors = described.get("vectorConfig") or {}
    index = vectors.get(VECTOR, {}).get("vectorIndexConfig") or {}
    if index.get("distance") != _DISTANCES[spec.metric]:
        raise RefusedError(
            f"collection {name!r} was made for the metric {spec.metric}, and compares by "
            f"{index.get('distance')!r}",
            code="spec-mismatch",
            hint=_HINT,
        )
    copies = int((described.get("replicationConfig") or {}).get("factor") or 1)
    return Collection(name, spec, made_for.get("tenant_key"), _columns(described), copies)


def missing_columns(
    settings: WeaviateSettings, collection: Collection
) -> list[tuple[str, PropertyType]]:
    """Metadata keys of the settings that a collection has no property for yet.

    Raises:
        RefusedError: it has one of another type, or other tenants.
    """
    if settings.tenant_key != collection.tenant_key:
        raise RefusedError(
            f"collection {collection.name!r} has tenants by {collection.tenant_key!r}, and is now "
            f"asked for tenants by {settings.tenant_key!r}",
            code="spec-mismatch",
            hint=_HINT,
        )
    missing = []
    for key, kind in map(property_field, settings.properties):
        known = collection.columns.get(key)
        if known is None:
            missing.append((key, kind))
        elif known[1] != kind:
            raise RefusedError(
                f"property {known[0]} of collection {collection.name!r} is a {known[1]}, and is "
                f"now asked for as a {kind}; Weaviate never changes a type",
                code="spec-mismatch",
                hint="leave the type in store.properties, or build a new index version",
            )
    return missing


def _description(settings: WeaviateSettings, collection: str, spec: CollectionSpec) -> str:
    record = {
        "collection": collection,
        "dimension": spec.dimension,
        "metric": spec.metric,
        "normalised": spec.normalised,
        "tenant_key": settings.tenant_key,
    }
    return _MADE_BY + orjson.dumps(record).decode()


def _made_for(class_name: str, described: Mapping[str, Any]) -> dict[str, Any]:
    found = re.search(r"\{.*\}", described.get("description") or "", re.DOTALL)
    if found is None:
        raise _foreign(class_name)
    try:
        record = orjson.loads(found[0])
    except orjson.JSONDecodeError as error:
        raise _foreign(class_name) from error
    return record if isinstance(record, dict) else {}


def _foreign(class_name: str) -> RefusedError:
    return RefusedError(
        f"collection {class_name} of the server does not say what it was made for: it is not one "
        "of embedmill's",
        code="spec-mismatch",
        hint=_HINT,
    )


def _columns(described: Mapping[str, Any]) -> dict[str, tuple[str, PropertyType]]:
    columns = {}
    for one in described.get("properties") or ():
        try:
            record = orjson.loads(one.get("description") or "")
        except orjson.JSONDecodeError:
            continue
        match record:
            case {"metadata": str() as key, "type": kind} if kind in get_args(PropertyType):
                columns[key] = (str(one["name"]), kind)
    return columns


def _property(
    name: str, data_type: str, tokenization: str | None = None, *, filterable: bool = True
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": name,
        "dataType": [data_type],
        "indexFilterable": filterable,
        "indexSearchable": False,
    }
    if tokenization is not None:
        # "word", which the server would take, finds parts of a text and calls them equal.
        made["tokenization"] = tokenization
    return made


def _text_property(*, searchable: bool) -> dict[str, Any]:
    made = _property(TEXT, "text", "word", filterable=False)
    made["indexSearchable"] = searchable
    return made


def _vector_index(settings: WeaviateSettings, spec: CollectionSpec) -> dict[str, Any]:
    given: dict[str, Any] = {
        "maxConnections": settings.graph_max_connections,
        "efConstruction": settings.graph_ef_construction,
        "ef": settings.search_ef,
    }
    config: dict[str, Any] = {"distance": _DISTANCES[spec.metric]}
    graph = {key: value for key, value in given.items() if value is not None}
    compression: dict[str, Any] = (
        # From 1.33 on a server compresses where it is not told to leave it.
        {"skipDefaultQuantization": True}
        if settings.compression == "none"
        else {settings.compression: {"enabled": True}}
    )
    match settings.index_type:
        case "hnsw":
            return {**config, **graph, **compression}
        case "flat":
            return {**config, **compression}
        case "dynamic":
            return {**config, "hnsw": {**config, **graph, **compression}, "flat": dict(config)}
