"""Definitions of collections and aliases at the fake Weaviate: checked and completed as it does."""

from __future__ import annotations

import copy
import re
from typing import Any

from embedmill.testing.weaviate_fake_state import FakeClass, FakeState, ServerError

CLASS_NAME = re.compile(r"[A-Z][_0-9A-Za-z]{0,254}")
PROPERTY_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]{0,230}")
RESERVED = frozenset({"_additional", "_id", "id"})
RESERVED_ENDINGS = (
    "_searchable",
    "_rangeable",
    "_temp",
    "__meta_count",
    "_propertyLength",
    "_nullState",
)
_SCALARS = ("text", "int", "number", "boolean", "date", "uuid", "object", "blob")
_TYPES = frozenset([*_SCALARS, *(f"{one}[]" for one in _SCALARS)])
_TOKENIZATIONS = frozenset({"word", "lowercase", "whitespace", "field", "trigram", "gse"})
_DISTANCES = frozenset({"cosine", "dot", "l2-squared", "hamming", "manhattan"})
_HNSW: dict[str, Any] = {
    "skip": False,
    "cleanupIntervalSeconds": 300,
    "maxConnections": 32,
    "efConstruction": 128,
    "ef": -1,
    "dynamicEfMin": 100,
    "dynamicEfMax": 500,
    "dynamicEfFactor": 8,
    "vectorCacheMaxObjects": 1_000_000_000_000,
    "flatSearchCutoff": 40_000,
    "filterStrategy": "sweeping",
}
_FLAT: dict[str, Any] = {"vectorCacheMaxObjects": 1_000_000_000_000}
_DEFAULTS = {"hnsw": _HNSW, "flat": _FLAT, "dynamic": {"threshold": 10_000}}
_COMPRESSIONS = {"hnsw": {"pq", "bq", "sq", "rq"}, "flat": {"bq", "rq"}}


def create_class(state: FakeState, body: Any) -> dict[str, Any]:  # noqa: ANN401, off the wire
    """Create a collection; what it is described as.

    Raises:
        ServerError: the server would refuse it.
    """
    name = str(body.get("class") or "")
    name = name[:1].upper() + name[1:]
    if not CLASS_NAME.fullmatch(name):
        raise ServerError(f"'{name}' is not a valid class name")
    similar = state.similar(name)
    if similar == name:
        raise ServerError(f"class name {name} already exists")
    if similar is not None:
        raise ServerError(f'class already exists: found similar class "{similar}"')
    if name in state.aliases:
        raise ServerError(f"create class: class name {name} already exists as an alias")
    if len(state.classes) >= state.options.max_collections:
        raise ServerError(
            "maximum number of collections reached, to increase it set "
            "MAXIMUM_ALLOWED_COLLECTIONS_COUNT"
        )
    definition = _completed(copy.deepcopy(body), name)
    state.classes[name] = FakeClass(definition)
    return definition


def add_property(state: FakeState, name: str, body: Any) -> dict[str, Any]:  # noqa: ANN401, off the wire
    """Add a property to a collection.

    Raises:
        ServerError: the server would refuse it.
    """
    found = state.classes.get(name)
    if found is None:
        raise ServerError(f"class {name} not found", 404)
    known = {one["name"].lower() for one in found.definition["properties"]}
    if str(body.get("name", "")).lower() in known:
        raise ServerError(
            f"class {name!r}: conflict for property {body['name']!r}: already in use or provided "
            "multiple times"
        )
    completed = _completed_property(body)
    found.definition["properties"].append(completed)
    return completed


def delete_class(state: FakeState, name: str) -> None:
    """Delete a collection; an alias to it is left dangling, and is no name for it here."""
    state.classes.pop(name, None)


def put_alias(state: FakeState, alias: str, target: str, *, create: bool) -> None:
    """Create or move an alias.

    Raises:
        ServerError: the server would refuse it.
    """
    if not CLASS_NAME.fullmatch(alias):
        raise ServerError(f"'{alias}' is not a valid alias name")
    if create and state.similar(alias):
        raise ServerError(f"create alias: class {alias} already exists")
    if create and alias in state.aliases:
        raise ServerError(f"create alias: alias {alias} already exists")
    if not create and alias not in state.aliases:
        raise ServerError(f"not found, no alias found with name: {alias}", 404)
    if target not in state.classes:
        raise ServerError(f"class {target}: not found", 404 if create else 422)
    state.aliases[alias] = target


def _completed(body: dict[str, Any], name: str) -> dict[str, Any]:
    multi = body.get("multiTenancyConfig") or {}
    tenancy = {
        key: bool(multi.get(key))
        for key in ("enabled", "autoTenantCreation", "autoTenantActivation")
    }
    if body.get("shardingConfig") and tenancy["enabled"]:
        raise ServerError("cannot have both shardingConfig and multiTenancyConfig")
    properties = [_completed_property(one) for one in body.get("properties") or []]
    names = [one["name"].lower() for one in properties]
    doubled = next((one for one in names if names.count(one) > 1), None)
    if doubled is not None:
        raise ServerError(f"class {name!r}: conflict for property {doubled!r}: already in use")
    completed: dict[str, Any] = {
        "class": name,
        "description": body.get("description") or "",
        "properties": properties,
        "invertedIndexConfig": {
            "bm25": {"b": 0.75, "k1": 1.2},
            "cleanupIntervalSeconds": 60,
            "stopwords": {"preset": "en", "additions": None, "removals": None},
        },
        "multiTenancyConfig": tenancy,
        "replicationConfig": {
            "factor": 1,
            "asyncEnabled": False,
            "deletionStrategy": "NoAutomatedResolution",
            **(body.get("replicationConfig") or {}),
        },
        "shardingConfig": _sharding((body.get("shardingConfig") or {}).get("desiredCount", 1)),
    }
    if "vectorConfig" in body:
        completed["vectorConfig"] = {
            one: _vector(config) for one, config in body["vectorConfig"].items()
        }
    else:
        completed |= {"vectorizer": body.get("vectorizer", "none"), "vectorIndexType": "hnsw"}
        completed["vectorIndexConfig"] = {"distance": "cosine"}
    return completed


def _sharding(count: int) -> dict[str, Any]:
    return {
        "virtualPerPhysical": 128,
        "desiredCount": count,
        "actualCount": count,
        "desiredVirtualCount": 128 * count,
        "actualVirtualCount": 128 * count,
        "key": "_id",
        "strategy": "hash",
        "function": "murmur3",
    }


def _vector(config: dict[str, Any]) -> dict[str, Any]:
    if set(config.get("vectorizer") or {}) != {"none"}:
        raise ServerError(f"vectorizer: no module with name {list(config['vectorizer'])} present")
    kind = config.get("vectorIndexType", "hnsw")
    if kind not in {"hnsw", "flat", "dynamic"}:
        raise ServerError(f"unrecognized or unsupported vectorIndexType {kind!r}")
    given = dict(config.get("vectorIndexConfig") or {})
    given.setdefault("distance", "cosine")
    if given["distance"] not in _DISTANCES:
        raise ServerError(f"parse vector index config: unrecognized distance {given['distance']!r}")
    compressions = {"pq", "bq", "sq", "rq"} & given.keys()
    if len(compressions) > 1 or compressions - _COMPRESSIONS.get(kind, {"pq", "bq", "sq", "rq"}):
        raise ServerError(f"invalid {kind} config: quantization {sorted(compressions)}")
    completed = _DEFAULTS[kind] | given
    return {"vectorizer": {"none": {}}, "vectorIndexType": kind, "vectorIndexConfig": completed}


def _completed_property(body: Any) -> dict[str, Any]:  # noqa: ANN401, off the wire
    name, types = str(body.get("name") or ""), body.get("dataType") or []
    if not PROPERTY_NAME.fullmatch(name):
        raise ServerError(
            f"'{name}' is not a valid property name. Property names in Weaviate are restricted to "
            "valid GraphQL names, which must be “/[_A-Za-z][_0-9A-Za-z]*/”."
        )
    if name in RESERVED or name.endswith(RESERVED_ENDINGS):
        raise ServerError(f"'{name}' is a reserved property name")
    if len(types) != 1 or types[0] not in _TYPES:
        raise ServerError(f"property '{name}': invalid dataType: {types}")
    text = types[0] in {"text", "text[]"}
    tokenization = body.get("tokenization") or ("word" if text else None)
    if not text and tokenization:
        raise ServerError(f"tokenization is not allowed for data type '{types[0]}'")
    if text and tokenization not in _TOKENIZATIONS:
        raise ServerError(f"property '{name}': unknown tokenization '{tokenization}'")
    if body.get("indexSearchable") and not text:
        raise ServerError(f"`indexSearchable` is not allowed for data type '{types[0]}'")
    completed = {
        "name": name,
        "description": body.get("description") or "",
        "dataType": list(types),
        "indexFilterable": body.get("indexFilterable", True) is not False,
        "indexSearchable": body.get("indexSearchable", text) is not False and text,
        "indexRangeFilters": bool(body.get("indexRangeFilters")),
    }
    return {**completed, "tokenization": tokenization} if text else completed
