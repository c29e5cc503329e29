"""Qdrant's engine inside the process, over a local folder.

The engine (qdrant-edge-py 0.9) keeps one collection per directory and nothing else: names, aliases,
the lock and every check are ours. Four of its habits decide how it is used here (all measured):

* it stores NaN, mangles some payloads, and a payload nested deeper than 122 levels makes the whole
  collection unreadable: nothing reaches it unchecked;
* on a full disk it dies of SIGBUS, since it writes through memory maps, and cannot be opened again
  before there is room: free space is looked at first;
* what it has taken survives the end of the process, but not a loss of power: its log is synced
  before a write counts as confirmed;
* it holds the interpreter's lock in every call: give it a process of its own.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import qdrant_edge

from embedmill.batching import by_halves, pack
from embedmill.embedder import Vectors
from embedmill.errors import (
    DamagedFileError,
    EmbedmillError,
    PermanentError,
    RefusedError,
    StopRunError,
)
from embedmill.payload import EXACT_FLOAT, Filter, Scalar, conditions_of, metadata_key
from embedmill.settings import QdrantEmbeddedSettings
from embedmill.vector_store import (
    CollectionSpec,
    Hit,
    Rejection,
    StoreLimits,
    VectorBatch,
    check_batch,
    check_query,
)
from embedmill.vector_stores.store_folder import (
    DISK_ERRNOS,
    StoreFolder,
    disk_error,
    sync_tree,
)

# 512 records: between 256 and 1000 the rate is the same within noise. 32 MiB is one file of the
# engine's log; larger writes get a file of their own (70 MiB passed).
QDRANT_EMBEDDED_LIMITS = StoreLimits(
    records=512, request_bytes=32 * 2**20, payload_bytes=8 * 2**20, writers=1
)
# Two of the engine's log files (32 MiB each, made in advance) and its memory maps; beyond that a
# write needs about three times its own bytes.
RESERVED_BYTES = 96 * 2**20
# The engine keeps its log until told to flush; this bounds the log on disk and the time to open
# again (about 2 s), and costs 3 % at most.
_FLUSH_BYTES = 256 * 2**20
_PAGE = 10_000


def _config(spec: CollectionSpec) -> qdrant_edge.EdgeConfig:
    distances = {
        "cosine": qdrant_edge.Distance.Cosine,
        "dot": qdrant_edge.Distance.Dot,
        "euclid": qdrant_edge.Distance.Euclid,
    }
    params = qdrant_edge.EdgeVectorParams(size=spec.dimension, distance=distances[spec.metric])
    # Without the log everything since the last flush is lost with the process, and two
    # processes can write to one folder without noticing.
    return qdrant_edge.EdgeConfig(vectors=params, wal_enabled=True)


class QdrantEmbeddedStore:
    """A :class:`~embedmill.vector_store.VectorStore` over qdrant-edge; one owner per folder.

    Collections stay open once used, since opening reads the engine's log again. Search compares
    with every record: exact, about 2 ms per 20,000 records of 384 dimensions, 40 ms with a filter.

    Raises:
        IndexLockedError: somebody else has the folder.
        StopRunError: the folder cannot be used.
    """

    limits = QDRANT_EMBEDDED_LIMITS

    def __init__(self, settings: QdrantEmbeddedSettings) -> None:
        self._folder = StoreFolder(Path(settings.path), "qdrant_embedded")
        self._shards: dict[str, qdrant_edge.EdgeShard] = {}
        self._opening = threading.Lock()
        self._unflushed: dict[str, int] = {}

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create; doing it again with the same spec changes nothing."""

        def fill(records: Path) -> None:
            self._check_room(0)
            with engine_errors(self._folder.path, StopRunError):
                # No index on doc_id: it took 6 % of the writing rate, and filters on it are rare.
                qdrant_edge.EdgeShard.create(str(records), _config(spec)).close()
            sync_tree(records)

        self._folder.create(collection, spec, fill)

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole, synced to disk before it returns."""
        good, rows, rejections = check_batch(batch, self._folder.spec(collection), self.limits)
        if not rows:
            return rejections
        sizes = [good.vectors.shape[1] * 4 + len(orjson.dumps(p)) for p in good.payloads]
        self._check_room(sum(sizes))
        shard = self._shard(collection)
        refused: dict[int, PermanentError] = {}
        packs = pack(
            len(rows),
            most_rows=self.limits.records,
            sizes={"bytes": sizes},
            limits={"bytes": self.limits.request_bytes},
        )
        for part in packs:
            refused |= by_halves(part.rows, lambda some: self._put(shard, good, some))
        check_not_all(refused, len(rows))
        self._confirm(collection, sum(sizes))
        rejections += [Rejection(rows[r], e.code, str(e)) for r, e in refused.items()]
        return sorted(rejections, key=lambda rejection: rejection.row)

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, synced to disk before it returns; absent ids are no error."""
        self._folder.spec(collection)
        if not ids:
            return
        self._check_room(0)
        shard = self._shard(collection)
        for start in range(0, len(ids), _PAGE):
            with engine_errors(self._folder.path, StopRunError):
                some = qdrant_edge.UpdateOperation.delete_points(list(ids[start : start + _PAGE]))
                shard.update(some)
        self._confirm(collection, 16 * len(ids))

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """Return the records that exist, in the order of ``ids``."""
        name = self._folder.resolve(collection)
        spec = self._folder.spec(name)
        shard = self._shard(name)
        found: dict[UUID, Any] = {}
        for start in range(0, len(ids), _PAGE):
            some: list[int | UUID | str] = list(ids[start : start + _PAGE])
            with engine_errors(self._folder.path, StopRunError):
                records = shard.retrieve(some, with_payload=True, with_vector=True)
            found.update((_uuid(record.id), record) for record in records)
        present = [record for record in ids if record in found]
        vectors = np.array([found[record].vector for record in present], dtype=np.float32)
        return VectorBatch(
            ids=present,
            vectors=vectors.reshape(len(present), spec.dimension),
            payloads=[found[record].payload for record in present],
        )

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first, compared with every record."""
        name = self._folder.resolve(collection)
        check_query(name, vector, k, self._folder.spec(name))
        shard = self._shard(name)
        request = qdrant_edge.QueryRequest(
            limit=k,
            query=qdrant_edge.Query.Nearest(vector.tolist()),
            filter=self._filter(where),
            params=qdrant_edge.SearchParams(exact=True),
            with_payload=True,
        )
        with engine_errors(self._folder.path, StopRunError):
            points = shard.query(request)
        return [Hit(_uuid(point.id), point.score, point.payload or {}) for point in points]

    def count(self, collection: str) -> int:
        """Exact number of records."""
        shard = self._shard(self._folder.resolve(collection))
        with engine_errors(self._folder.path, StopRunError):
            return shard.count(qdrant_edge.CountRequest(exact=True))

    def ids(self, collection: str) -> Iterator[UUID]:
        """Every record id once, read page by page."""
        return self._scroll(self._shard(self._folder.resolve(collection)))

    def collections(self) -> Sequence[str]:
        """Names of the collections that exist, sorted."""
        return self._folder.collections()

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection`` in one step."""
        self._folder.set_alias(alias, collection)

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None."""
        return self._folder.alias_target(alias)

    def drop_collection(self, collection: str) -> None:
        """Delete a collection with all records; absent is no error."""
        self._folder.check_droppable(collection)
        shard = self._shards.pop(collection, None)
        if shard is not None:
            shard.close()
        self._folder.drop(collection)

    def close(self) -> None:
        """Flush where there is room, and let go of the folder."""
        roomy = _free_bytes(self._folder.path) >= RESERVED_BYTES
        try:
            while self._shards:
                name, shard = self._shards.popitem()
                if roomy and self._unflushed.get(name):
                    with engine_errors(self._folder.path, StopRunError):
                        shard.flush()
                shard.close()
        finally:
            self._folder.close()

    def _shard(self, collection: str) -> qdrant_edge.EdgeShard:
        self._folder.spec(collection)
        # Readers are shared by threads, and the engine opens a collection only once.
        with self._opening:
            shard = self._shards.get(collection)
            if shard is None:
                self._check_room(0)
                with engine_errors(self._folder.path, DamagedFileError):
                    shard = qdrant_edge.EdgeShard.load(str(self._folder.records_of(collection)))
                self._shards[collection] = shard
            return shard

    def _check_room(self, size: int) -> None:
        needed = RESERVED_BYTES + 3 * size
        free = _free_bytes(self._folder.path)
        if free < needed:
            raise disk_error(
                self._folder.path,
                f"{free >> 20} MiB are free, {needed >> 20} MiB are needed to write safely",
            )

    def _put(self, shard: qdrant_edge.EdgeShard, records: VectorBatch, rows: Sequence[int]) -> None:
        with engine_errors(self._folder.path, PermanentError):
            # One list of floats at a time: 10 % faster than converting all vectors first.
            # Rows are neighbours: whatever they were cut to, they came from one range.
            some = slice(rows[0], rows[-1] + 1)
            columns = zip(
                records.ids[some], records.vectors[some], records.payloads[some], strict=True
            )
            points = [
                qdrant_edge.Point(record, vector.tolist(), payload)
                for record, vector, payload in columns
            ]
            shard.update(qdrant_edge.UpdateOperation.upsert_points(points))

    def _confirm(self, collection: str, size: int) -> None:
        self._unflushed[collection] = self._unflushed.get(collection, 0) + size
        with engine_errors(self._folder.path, StopRunError):
            if self._unflushed[collection] >= _FLUSH_BYTES:
                self._shards[collection].flush()
                self._unflushed[collection] = 0
            _sync_log(self._folder.records_of(collection) / "wal")

    def _scroll(self, shard: qdrant_edge.EdgeShard) -> Iterator[UUID]:
        offset: Any = None
        while True:
            request = qdrant_edge.ScrollRequest(
                offset=offset, limit=_PAGE, with_payload=False, with_vector=False
            )
            with engine_errors(self._folder.path, StopRunError):
                records, offset = shard.scroll(request)
            yield from (_uuid(record.id) for record in records)
            if offset is None:
                return

    def _filter(self, where: Filter | None) -> qdrant_edge.Filter | None:
        conditions = conditions_of(where)
        if not conditions:
            return None
        return qdrant_edge.Filter(must=[self._any_of(*item) for item in conditions.items()])

    def _any_of(self, key: str, values: Sequence[Scalar]) -> qdrant_edge.Filter:
        if '"' in key or "\\" in key:
            raise RefusedError(f"this store cannot filter on the key {key!r}", code="filter")
        texts = [value for value in values if isinstance(value, str)]
        # An empty list of texts matches nothing, and an empty `should` would match everything.
        conditions = [self._on(key, match=qdrant_edge.MatchAny(texts))]
        conditions += [self._equals(key, v) for v in values if not isinstance(v, str)]
        return qdrant_edge.Filter(should=list(conditions))

    def _equals(self, key: str, value: float) -> qdrant_edge.FieldCondition:
        if isinstance(value, bool):
            # A Python bool would be taken for the integers 0 and 1; numpy's is not an integer.
            truth: Any = np.bool_(value)
            return self._on(key, match=qdrant_edge.MatchValue(truth))
        if isinstance(value, int) and abs(value) >= EXACT_FLOAT:
            return self._on(key, match=qdrant_edge.MatchValue(value))
        # Matching an integer would miss 1.0, and matching a float is not offered.
        return self._on(key, range=qdrant_edge.RangeFloat(gte=value, lte=value))

    def _on(self, key: str, **test: Any) -> qdrant_edge.FieldCondition:  # noqa: ANN401 (passed on)
        # In quotes a key is one name, whatever dots and brackets are in it.
        inner = metadata_key(key)
        return qdrant_edge.FieldCondition(f'metadata."{inner}"' if inner else f'"{key}"', **test)


@contextmanager
def engine_errors(folder: Path, otherwise: type[EmbedmillError]) -> Iterator[None]:
    """Name what the engine raises: about the disk, or what the caller expects ``otherwise``.

    Raises:
        StopRunError: the text speaks of a full, read-only or defective disk.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        # Long texts quote the whole call stack of the conversion, and with it the record.
        short = " ".join(text.split())[:200]
        number = re.search(r"os error (\d+)", text)
        if isinstance(error, OSError) or (number and int(number.group(1)) in DISK_ERRNOS):
            raise disk_error(folder, short) from error
        raise otherwise(f"the engine says: {short}", code="refused-by-store") from error


def check_not_all(refused: dict[int, PermanentError], count: int) -> None:
    """One bad record is a dead letter; when none of several passes, it is not about the records.

    Raises:
        StopRunError: all of several records were refused.
    """
    if count > 1 and len(refused) == count:
        first = refused[min(refused)]
        raise StopRunError(f"the store took none of {count} records; the first: {first}")


def _sync_log(folder: Path) -> None:
    # A thread of the engine makes and renames log files: look again until none vanished on the
    # way. It does so once per 32 MiB, so that a second look finds them all.
    for _ in range(10):
        try:
            sync_tree(folder)
        except FileNotFoundError:
            continue
        return
    sync_tree(folder)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _uuid(value: UUID | str | int) -> UUID:
    return value if isinstance(value, UUID) else UUID(str(value))
