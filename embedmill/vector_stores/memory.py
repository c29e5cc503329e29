"""Records in the memory of this process: exact, strict, and gone with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import orjson

from embedmill.embedder import Vectors
from embedmill.errors import RefusedError
from embedmill.payload import Filter, conditions_of, matches
from embedmill.recipe import Metric
from embedmill.settings import MemoryStoreSettings
from embedmill.store_checks import check_batch, check_name, check_query, check_same_spec
from embedmill.vector_store import CollectionSpec, Hit, Rejection, StoreLimits, VectorBatch

# What the embedded store takes, so that a rehearsal in memory meets the same limits.
MEMORY_LIMITS = StoreLimits(
    records=1000, request_bytes=32 * 2**20, payload_bytes=8 * 2**20, writers=1
)


@dataclass(slots=True)
class _Collection:
    """Rows without gaps: ``vectors[:len(ids)]`` are the stored ones, the rest is room to grow."""

    spec: CollectionSpec
    vectors: Vectors
    row_of: dict[UUID, int] = field(default_factory=dict)
    ids: list[UUID] = field(default_factory=list)
    # As JSON, so that nobody can change a stored payload from outside.
    payloads: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Contents:
    collections: dict[str, _Collection] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


# By store name, for the life of the process: whoever opens the same name sees the same records.
_CONTENTS: dict[str, _Contents] = {}


def nearness(vectors: Vectors, query: Vectors, metric: Metric) -> Vectors:
    """Score of each row against the query: cosine, dot product or euclidean distance.

    Args:
        vectors: shape (n, dimension); of norm 1 for cosine.
        query: shape (dimension,); of any norm.
        metric: how to compare.
    """
    if metric == "euclid":
        return np.asarray(np.linalg.norm(vectors - query, axis=1), dtype=np.float32)
    scores = vectors @ query
    return np.asarray(scores / np.linalg.norm(query) if metric == "cosine" else scores)


class MemoryStore:
    """A :class:`~embedmill.vector_store.VectorStore` by brute force; for one thread at a time."""

    limits = MEMORY_LIMITS

    def __init__(self, settings: MemoryStoreSettings) -> None:
        self._contents = _CONTENTS.setdefault(settings.name, _Contents())
        self._closed = False

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create; doing it again with the same spec changes nothing."""
        check_name(collection)
        contents = self._open()
        if collection in contents.aliases:
            raise RefusedError(f"{collection!r} is an alias already")
        existing = contents.collections.get(collection)
        if existing is not None:
            check_same_spec(collection, existing.spec, spec)
            return
        room = np.empty((0, spec.dimension), dtype=np.float32)
        contents.collections[collection] = _Collection(spec=spec, vectors=room)

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole; the rows that were not taken come back."""
        target = self._written(collection)
        good, _, rejections = check_batch(batch, target.spec, self.limits)
        if not good.ids:
            return rejections
        for record, payload in zip(good.ids, good.payloads, strict=True):
            row = target.row_of.setdefault(record, len(target.ids))
            if row == len(target.ids):
                target.ids.append(record)
                target.payloads.append(b"")
            target.payloads[row] = orjson.dumps(payload)
        vectors = good.vectors
        if target.spec.metric == "cosine":
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        _make_room(target)
        target.vectors[[target.row_of[record] for record in good.ids]] = vectors
        return rejections

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records; absent ids are no error."""
        target = self._written(collection)
        for record in ids:
            row = target.row_of.pop(record, None)
            if row is None:
                continue
            last_id, last_payload = target.ids.pop(), target.payloads.pop()
            if row < len(target.ids):
                target.ids[row], target.payloads[row] = last_id, last_payload
                target.vectors[row] = target.vectors[len(target.ids)]
                target.row_of[last_id] = row

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """Return the records that exist, in the order of ``ids``."""
        source = self._read(collection)
        rows = [source.row_of[record] for record in ids if record in source.row_of]
        return VectorBatch(
            ids=[source.ids[row] for row in rows],
            vectors=source.vectors[rows],
            payloads=[orjson.loads(source.payloads[row]) for row in rows],
        )

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first."""
        source = self._read(collection)
        check_query(collection, vector, k, source.spec)
        rows = _matching_rows(source, where)
        scores = nearness(source.vectors[rows], vector, source.spec.metric)
        order = scores if source.spec.metric == "euclid" else -scores
        best = np.argsort(order, kind="stable")[:k]
        return [
            Hit(source.ids[row], float(scores[place]), orjson.loads(source.payloads[row]))
            for place, row in zip(best, rows[best], strict=True)
        ]

    def count(self, collection: str) -> int:
        """Exact number of records."""
        return len(self._read(collection).ids)

    def ids(self, collection: str) -> Iterator[UUID]:
        """Every record id once."""
        return iter(list(self._read(collection).ids))

    def collections(self) -> Sequence[str]:
        """Names of the collections that exist, sorted."""
        return sorted(self._open().collections)

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection``."""
        check_name(alias)
        self._written(collection)
        if alias in self._contents.collections:
            raise RefusedError(f"{alias!r} is a collection and cannot be an alias")
        self._contents.aliases[alias] = collection

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None."""
        return self._open().aliases.get(alias)

    def drop_collection(self, collection: str) -> None:
        """Delete a collection with all records; absent is no error."""
        contents = self._open()
        holders = sorted(a for a, target in contents.aliases.items() if target == collection)
        if holders:
            raise RefusedError(f"alias {holders[0]!r} points at collection {collection!r}")
        contents.collections.pop(collection, None)

    def close(self) -> None:
        """Let go; the records stay for whoever opens the same name in this process."""
        self._closed = True

    def _open(self) -> _Contents:
        if self._closed:
            raise RefusedError("the store was closed")
        return self._contents

    def _read(self, name: str) -> _Collection:
        return self._written(self._open().aliases.get(name, name))

    def _written(self, name: str) -> _Collection:
        found = self._open().collections.get(name)
        if found is None:
            raise RefusedError(f"there is no collection {name!r}", code="no-collection")
        return found


def _make_room(target: _Collection) -> None:
    if len(target.ids) > len(target.vectors):
        # Doubling keeps the copies below one per record on average.
        room = np.empty((2 * len(target.ids), target.spec.dimension), dtype=np.float32)
        room[: len(target.vectors)] = target.vectors
        target.vectors = room


def _matching_rows(
    source: _Collection, where: Filter | None
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    conditions = conditions_of(where)
    if not conditions:
        return np.arange(len(source.ids))
    rows = [
        row
        for row, payload in enumerate(source.payloads)
        if matches(orjson.loads(payload), conditions)
    ]
    return np.array(rows, dtype=np.intp)
