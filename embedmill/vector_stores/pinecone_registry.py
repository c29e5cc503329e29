"""What each collection was made for: one small record per collection, in a namespace of ours.

An index knows its dimension and metric; that vectors have norm 1, and that a namespace is ours at
all, is written down here. The record is written before the namespace is created, and the namespace
is what makes the collection exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from embedmill.errors import RefusedError
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.pinecone_data import PineconeData, upsert_body
from embedmill.vector_stores.pinecone_freshness import Freshness

# No collection's name begins with an underscore.
REGISTRY = "_embedmill"
_AT_ONCE = 100
# No collection's name begins like that.
_CHOICE = "_alias:"


class Registry:
    """Specs of the collections of one index."""

    def __init__(self, data: PineconeData, freshness: Freshness) -> None:
        self._data = data
        self._freshness = freshness

    def read(self, names: list[str]) -> dict[str, CollectionSpec]:
        """Specs of those collections that have one."""
        self._freshness.see_own(REGISTRY)
        specs = {}
        for start in range(0, len(names), _AT_ONCE):
            found = self._data.fetch(REGISTRY, names[start : start + _AT_ONCE])
            for name, record in found.items():
                specs[name] = _spec(name, record.metadata or {})
        return specs

    def write(self, name: str, spec: CollectionSpec) -> None:
        """Write a spec down, so that everybody sees it when this returns."""
        self._put(name, asdict(spec))
        self._freshness.until(lambda: self.read([name]).get(name) == spec, REGISTRY)

    def choose(self, alias: str, index: str) -> None:
        """Write down in which index an alias holds, so that everybody sees it when this returns."""
        self._put(_CHOICE + alias, {"index": index})
        self._freshness.until(lambda: self.chosen(alias) == index, REGISTRY)

    def chosen(self, alias: str) -> str:
        """Name of the index in which an alias holds; empty when nobody has said so."""
        self._freshness.see_own(REGISTRY)
        record = self._data.fetch(REGISTRY, [_CHOICE + alias]).get(_CHOICE + alias)
        return str((record.metadata or {}).get("index", "")) if record else ""

    def _put(self, name: str, metadata: Mapping[str, Any]) -> None:
        record = {"id": name, "values": self._data.unit_vector, "metadata": metadata}
        _, position = self._data.upsert(upsert_body(REGISTRY, [record]))
        self._freshness.wrote(REGISTRY, position)

    def forget(self, name: str) -> None:
        """Remove a spec."""
        self._freshness.wrote(REGISTRY, self._data.delete(REGISTRY, [name]))


def _spec(name: str, record: Mapping[str, Any]) -> CollectionSpec:
    match record:
        case {
            # Numbers come back as floats.
            "dimension": int() | float() as dimension,
            "metric": "cosine" | "dot" | "euclid" as metric,
            "normalised": bool() as normalised,
        }:
            return CollectionSpec(int(dimension), metric, normalised)
        case _:
            raise RefusedError(
                f"the record of collection {name!r} in namespace {REGISTRY!r} is not one of ours"
            )
