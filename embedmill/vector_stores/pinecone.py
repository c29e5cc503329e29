"""Pinecone's serverless indexes, through its own SDK.

A collection is a namespace, an alias is a namespace alias (Pinecone's own, API 2026-07): many
versions stand side by side in one index and go live in one step. An index never changes dimension
and metric: a version that has others goes into an index beside it, and aliases follow (see
:mod:`embedmill.vector_stores.pinecone_places`).

What decides how it is used here:

* writes are confirmed before reads see them: reads of this process wait for its own writes, counts
  and listings for everybody's (see :mod:`embedmill.vector_stores.pinecone_freshness`);
* a request is taken or refused as a whole, at most 2 MB and 1,000 records: it is packed by bytes,
  and halved until a bad record is alone;
* metadata is flat and at most 40 KB: payloads are laid out by a table that loses nothing (see
  :mod:`embedmill.vector_stores.pinecone_metadata`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import UUID

import numpy as np
import orjson

from embedmill.embedder import Vectors
from embedmill.errors import RefusedError
from embedmill.payload import Filter
from embedmill.pinecone_settings import PineconeSettings
from embedmill.store_checks import check_batch, check_name, check_query, check_same_spec
from embedmill.throttle import RequestPace, at_once
from embedmill.vector_store import CollectionSpec, Hit, Rejection, StoreLimits, VectorBatch
from embedmill.vector_stores.pinecone_errors import AbsentError
from embedmill.vector_stores.pinecone_imports import PineconeImporter
from embedmill.vector_stores.pinecone_metadata import METADATA_BYTES, filter_of, payload_of
from embedmill.vector_stores.pinecone_places import OpenedIndex, Places
from embedmill.vector_stores.pinecone_registry import REGISTRY
from embedmill.vector_stores.pinecone_writing import BatchWriter

# Of one delete; Pinecone's operation limits.
_DELETED_AT_ONCE = 1000
# A fetch names its ids in the address: 200 UUIDs are 8 KB of it, and at 1,536 dimensions a reply of
# 5 MB. The service would take 1,000.
_FETCHED_AT_ONCE = 200
# Of one query; Pinecone's operation limits.
_MAX_K = 10_000


def pinecone_limits(settings: PineconeSettings) -> StoreLimits:
    """What one write may hold."""
    return StoreLimits(
        records=settings.records_per_request,
        request_bytes=settings.request_bytes,
        payload_bytes=METADATA_BYTES,
        writers=settings.writers,
    )


class PineconeStore:
    """A :class:`~embedmill.vector_store.VectorStore` over indexes of Pinecone.

    Nothing is asked of the service before the first call. Search is approximate, as the service
    is; a search by another process sees a write a moment after it was confirmed. Instances are for
    one thread at a time.

    Raises:
        SettingsError: the variable of the API key is not set.
    """

    def __init__(
        self,
        settings: PineconeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        pace: RequestPace = at_once,
    ) -> None:
        self.limits = pinecone_limits(settings)
        self._settings = settings
        self._pace = pace
        self._places = Places(settings, clock=clock, sleep=sleep)

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create namespace, and index where there is none; again with the same spec: no change."""
        check_name(collection)
        existing = self._places.find(collection)
        if existing is not None:
            check_same_spec(collection, existing.spec, spec)
            return
        for other in self._places.all():
            if other.data.has_namespace(collection):
                raise self._foreign(collection)
        if self._places.alias_target(collection) is not None:
            raise RefusedError(f"{collection!r} is an alias already")
        opened = self._places.open_for(spec)
        opened.registry.write(collection, spec)
        opened.data.create_namespace(collection)
        opened.freshness.until(partial(opened.data.has_namespace, collection), collection)
        self._places.made(collection, opened, spec)

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole; confirmed by the service before it returns."""
        opened, spec = self._written(collection)
        good, rows, rejections = check_batch(batch, spec, self.limits)
        writer = BatchWriter(collection, partial(self._put, opened, collection), self.limits)
        for row, (code, message) in writer.write(good).items():
            rejections.append(Rejection(rows[row], code, message))
        return sorted(rejections, key=lambda rejection: rejection.row)

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, confirmed before it returns; absent ids are no error."""
        opened, _ = self._written(collection)
        for start in range(0, len(ids), _DELETED_AT_ONCE):
            some = [str(record) for record in ids[start : start + _DELETED_AT_ONCE]]
            deletion = partial(opened.data.delete, collection, some)
            opened.freshness.wrote(collection, self._pace(deletion, 0))

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """Return the records that exist, in the order of ``ids``."""
        opened, name, spec = self._read(collection)
        opened.freshness.see_once(name)
        present: list[UUID] = []
        vectors, payloads = [], []
        for start in range(0, len(ids), _FETCHED_AT_ONCE):
            some = ids[start : start + _FETCHED_AT_ONCE]
            found = opened.data.fetch(name, [str(record) for record in some])
            there = [record for record in some if str(record) in found]
            present += there
            records = [found[str(record)] for record in there]
            vectors += [np.array(record.values, dtype=np.float32) for record in records]
            payloads += [payload_of(record.metadata or {}) for record in records]
        rows = np.array(vectors, dtype=np.float32).reshape(len(present), spec.dimension)
        return VectorBatch(ids=present, vectors=rows, payloads=payloads)

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first, by the service's own approximation."""
        opened, name, spec = self._read(collection)
        check_query(name, vector, k, spec)
        if k > _MAX_K:
            raise RefusedError(f"k is {k:,}, Pinecone takes {_MAX_K:,}", code="query")
        conditions = filter_of(where)
        opened.freshness.see_own(name)
        # The shortest decimals of these float32, see upsert_body.
        text = orjson.dumps(np.ascontiguousarray(vector), option=orjson.OPT_SERIALIZE_NUMPY)
        matches = opened.data.query(name, orjson.loads(text), k, conditions)
        if not matches and not opened.data.has_namespace(name):
            raise self._gone(name)
        return [
            Hit(UUID(match.id), _score(match.score, spec), payload_of(match.metadata or {}))
            for match in matches
        ]

    def count(self, collection: str) -> int:
        """Number of records, once all writes up to now are seen and the count stands still."""
        opened, name, _ = self._read(collection)
        self._see_all(opened, name)
        return opened.freshness.still_count(name)

    def ids(self, collection: str) -> Iterator[UUID]:
        """Every record id once.

        Raises:
            TransientError: at the end, the listing does not have as many as the statistics: one of
                the two lags behind.
        """
        opened, name, _ = self._read(collection)
        self._see_all(opened, name)
        return self._listed(opened, name, opened.freshness.still_count(name))

    def collections(self) -> Sequence[str]:
        """Names of the collections that exist, sorted; other namespaces of the indexes are not."""
        found: list[str] = []
        for opened in self._places.all():
            names = [name for name in opened.data.namespaces() if name != REGISTRY]
            found += opened.registry.read(names)
        return sorted(found)

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection``; every reader sees it when this returns."""
        check_name(alias)
        opened, _ = self._written(collection)
        if self._places.find(alias) is not None:
            raise RefusedError(f"{alias!r} is a collection and cannot be an alias")
        self._places.point(alias, collection, opened)

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None."""
        return self._places.alias_target(alias)

    def drop_collection(self, collection: str) -> None:
        """Delete a namespace with all records; absent is no error."""
        check_name(collection)
        for opened in self._places.all():
            if opened.data.has_namespace(collection):
                self._delete(opened, collection)
            if opened.registry.read([collection]):
                opened.registry.forget(collection)
        self._places.forget(collection)

    def bulk_importer(self, collection: str, spec: CollectionSpec) -> PineconeImporter:
        """Imports into a collection that does not exist yet: the import makes its namespace.

        Raises:
            RefusedError: an alias has that name, or a namespace that is none of ours.
        """
        check_name(collection)
        for other in self._places.all():
            if other.data.has_namespace(collection) and not other.registry.read([collection]):
                raise self._foreign(collection)
        if self._places.alias_target(collection) is not None:
            raise RefusedError(f"{collection!r} is an alias already")
        opened = self._places.open_for(spec)
        noted = opened.registry.read([collection]).get(collection)
        if noted is None:
            opened.registry.write(collection, spec)
        else:
            check_same_spec(collection, noted, spec)
        settings = self._settings.bulk_import
        integration = settings.integration if settings else None
        return PineconeImporter(opened, collection, spec, self.limits, integration)

    def close(self) -> None:
        """Let go of connections; nothing that was confirmed depends on it."""
        self._places.close()

    def _delete(self, opened: OpenedIndex, collection: str) -> None:
        if not opened.registry.read([collection]):
            raise self._foreign(collection)
        holders = opened.data.aliases_of(collection)
        if holders:
            raise RefusedError(
                f"alias {holders[0]!r} points at collection {collection!r}",
                hint="publish another version first",
            )
        opened.data.delete_namespace(collection)
        opened.freshness.until(lambda: not opened.data.has_namespace(collection), collection)
        opened.freshness.forget(collection)

    def _put(self, opened: OpenedIndex, collection: str, body: bytes, count: int) -> int:
        taken, position = self._pace(partial(opened.data.upsert, body), count)
        opened.freshness.wrote(collection, position)
        return taken

    def _see_all(self, opened: OpenedIndex, name: str) -> None:
        try:
            opened.freshness.see_all(name)
        except AbsentError as error:
            raise self._gone(name) from error

    def _listed(self, opened: OpenedIndex, name: str, expected: int) -> Iterator[UUID]:
        listed = 0
        for page in opened.data.id_pages(name):
            listed += len(page)
            yield from map(UUID, page)
        opened.freshness.check_listed(name, listed, expected)

    def _read(self, name: str) -> tuple[OpenedIndex, str, CollectionSpec]:
        """The collection that a reader means: the name itself, or the alias' target."""
        found = self._places.find(name)
        if found is None:
            target = self._places.alias_target(name)
            if target is None:
                raise self._gone(name)
            name, found = target, self._places.find(target)
        if found is None:
            raise self._foreign(name)
        return found.opened, name, found.spec

    def _written(self, collection: str) -> tuple[OpenedIndex, CollectionSpec]:
        found = self._places.find(collection)
        if found is None:
            raise self._gone(collection)
        return found.opened, found.spec

    def _gone(self, name: str) -> RefusedError:
        self._places.forget(name)
        return RefusedError(
            f"there is no collection {name!r} in the Pinecone index {self._settings.index!r}",
            code="no-collection",
        )

    def _foreign(self, name: str) -> RefusedError:
        return RefusedError(
            f"the namespace {name!r} of the Pinecone index {self._settings.index!r} was not made "
            "by embedmill",
            code="foreign",
            hint="delete it, or give store.index another name",
        )


def _score(score: float, spec: CollectionSpec) -> float:
    # For the euclidean metric the service gives the square of the distance.
    return math.sqrt(max(score, 0.0)) if spec.metric == "euclid" else score
