"""The fake Qdrant server's state: collections, their configuration and limits, aliases."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from embedmill.testing.qdrant_fake_filters import Path, needed_indexes, parsed_path, shown_path
from embedmill.testing.qdrant_fake_points import Points
from embedmill.testing.qdrant_fake_replies import ServerError, absent

_DISTANCES = frozenset({"Cosine", "Dot", "Euclid", "Manhattan"})
_INDEX_TYPES = frozenset({"keyword", "integer", "float", "bool", "datetime", "uuid", "text", "geo"})
_HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000, "max_indexing_threads": 0}
_OPTIMIZERS = {"default_segment_number": 0, "indexing_threshold": 10_000, "flush_interval_sec": 5}


@dataclass(slots=True)
class FakeCollection:
    """One collection.

    Attributes:
        points: of it.
        vectors: parameters as they were given.
        config: hnsw, optimizers, params and metadata as they were given.
        strict: its strict mode; empty: off.
        indexes: type of each indexed path.
        yellow_looks: how many more looks find it being optimised.
    """

    points: Points
    vectors: dict[str, Any]
    config: dict[str, dict[str, Any]]
    strict: dict[str, Any]
    indexes: dict[Path, tuple[str, Any]] = field(default_factory=dict)
    yellow_looks: int = 0


class FakeState:
    """All that one server holds; every change is made under its lock.

    Attributes:
        collections: by name.
        aliases: collection by alias.
        optimising: looks that find a collection yellow after its graph was changed.
        status: of every collection, whatever else is so; empty: the usual.
    """

    def __init__(self, strict: Mapping[str, Any], optimising: int) -> None:
        self.collections: dict[str, FakeCollection] = {}
        self.aliases: dict[str, str] = {}
        self.optimising = optimising
        self.status = ""
        self.lock = threading.RLock()
        self._strict = dict(strict)

    def collection(self, name: str) -> FakeCollection:
        """By name or alias.

        Raises:
            ServerError: there is none.
        """
        found = self.collections.get(self.aliases.get(name, name))
        if found is None:
            raise absent(name)
        return found

    def create(self, name: str, body: Any) -> bool:  # noqa: ANN401, off the wire
        """Create a collection with a single vector."""
        if name in self.collections:
            raise ServerError(409, f"Wrong input: Collection `{name}` already exists!")
        if name in self.aliases:
            words = f"Can't create collection with name {name}. Alias with the same name already"
            raise ServerError(400, f"Wrong input: {words} exists")
        vectors = body.get("vectors") if isinstance(body, dict) else None
        if not isinstance(vectors, dict) or not vectors:
            raise ServerError(400, "Format error in JSON body: missing field `vectors`")
        single = "size" in vectors
        _check_vectors(vectors if single else next(iter(vectors.values())))
        dimension, distance = vectors.get("size", 1), vectors.get("distance", "Dot")
        params = ("shard_number", "replication_factor", "write_consistency_factor")
        self.collections[name] = FakeCollection(
            points=Points(dimension, distance),
            vectors=vectors,
            config={
                "hnsw_config": _changed(_HNSW, body.get("hnsw_config")),
                "optimizer_config": _changed(_OPTIMIZERS, body.get("optimizers_config")),
                "params": {key: body[key] for key in params if body.get(key) is not None},
                "quantization_config": body.get("quantization_config") or {},
                "metadata": body.get("metadata") or {},
            },
            strict={**self._strict, **(body.get("strict_mode_config") or {})},
        )
        return True

    def update(self, name: str, body: Any) -> bool:  # noqa: ANN401, off the wire
        """Change parameters of a collection."""
        found = self.collection(name)
        for given, kept in (
            ("hnsw_config", "hnsw_config"),
            ("optimizers_config", "optimizer_config"),
        ):
            if body.get(given) is not None:
                found.config[kept] = _changed(found.config[kept], body[given])
                found.yellow_looks = self.optimising
        found.config["metadata"] |= body.get("metadata") or {}
        found.strict |= body.get("strict_mode_config") or {}
        return True

    def delete(self, name: str) -> bool:
        """Delete a collection, and without a word the aliases that point at it."""
        self.aliases = {a: target for a, target in self.aliases.items() if target != name}
        return self.collections.pop(name, None) is not None

    def change_aliases(self, actions: Any) -> bool:  # noqa: ANN401, off the wire
        """Take actions in order; what came before a refused one stays done."""
        for action in actions:
            if "create_alias" in action:
                wanted = action["create_alias"]
                name, alias = wanted["collection_name"], wanted["alias_name"]
                if name not in self.collections:
                    raise absent(name)
                if alias in self.collections:
                    raise ServerError(409, f"Wrong input: Collection `{alias}` already exists!")
                self.aliases[alias] = name
            elif "delete_alias" in action:
                self.aliases.pop(action["delete_alias"]["alias_name"], None)
            else:
                raise ServerError(400, "Format error in JSON body: unknown alias operation")
        return True

    def index(self, name: str, body: Any) -> None:  # noqa: ANN401, off the wire
        """Index a path of the payload."""
        found = self.collection(name)
        path, schema = parsed_path(body.get("field_name")), body.get("field_schema")
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if kind not in _INDEX_TYPES:
            raise ServerError(400, "Format error in JSON body: unknown `field_schema`")
        most = found.strict.get("max_payload_index_count")
        if found.strict.get("enabled") and most is not None and len(found.indexes) >= most:
            raise ServerError(400, f"Bad request: Collection already has {most} payload indexes")
        found.indexes[path] = (kind, schema if isinstance(schema, dict) else None)

    def described(self, name: str) -> dict[str, Any]:
        """What the server says about a collection."""
        found = self.collection(name)
        yellow = found.yellow_looks > 0
        found.yellow_looks -= yellow
        config = {**found.config, "params": {**found.config["params"], "vectors": found.vectors}}
        if not config["quantization_config"]:
            del config["quantization_config"]
        return {
            "status": self.status or ("yellow" if yellow else "green"),
            "optimizer_status": "ok",
            "points_count": len(found.points.by_id),
            "segments_count": 1,
            "config": {**config, "strict_mode_config": found.strict or None},
            "payload_schema": {
                shown_path(path): {"data_type": kind, "params": params, "points": 0}
                for path, (kind, params) in found.indexes.items()
            },
        }


def check_limit(collection: FakeCollection, key: str, value: int, name: str) -> None:
    """Refuse what is over a limit of the strict mode."""
    limit = collection.strict.get(key) if collection.strict.get("enabled") else None
    if limit is not None and value > limit:
        words = (
            f'Limit exceeded {value} > {limit} for "{name}". Help: Reduce the "{name}" parameter'
        )
        raise ServerError(400, f"Bad request: {words} to or below {limit}.")


def check_exact(collection: FakeCollection, *, exact: bool) -> None:
    """Refuse what is exact where the strict mode forbids it."""
    strict = collection.strict
    if exact and strict.get("enabled") and strict.get("search_allow_exact") is False:
        raise ServerError(400, "Bad request: Exact search disabled!. Help: Set exact=false.")


def check_indexed(collection: FakeCollection, where: object) -> None:
    """Refuse a filter on what is not indexed, where the strict mode says so."""
    strict = collection.strict
    if not strict.get("enabled") or strict.get("unindexed_filtering_retrieve") is not False:
        return
    for path, kinds in needed_indexes(where):
        if collection.indexes.get(path, ("",))[0] not in kinds:
            words = (
                f'"{shown_path(path)}" of one of the following types: [{", ".join(sorted(kinds))}]'
            )
            raise ServerError(400, f"Bad request: Index required but not found for {words}.")


def _check_vectors(params: Any) -> None:  # noqa: ANN401, off the wire
    if not isinstance(params, dict) or params.get("distance") not in _DISTANCES:
        raise ServerError(400, "Format error in JSON body: unknown variant of `distance`")
    size = params.get("size")
    if type(size) is not int or not 1 <= size <= 65_536:
        raise ServerError(422, "Validation error in JSON body: [vectors.size: value invalid]")


def _changed(before: dict[str, Any], diff: dict[str, Any] | None) -> dict[str, Any]:
    return before | {key: value for key, value in (diff or {}).items() if value is not None}
