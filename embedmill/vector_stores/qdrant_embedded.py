"""Qdrant's engine inside the process, over a local folder.

The engine (qdrant-edge-py 0.9) keeps one collection per directory and nothing else: names, aliases,
the lock and every check are ours. Four of its habits decide how it is used here (all measured):

* it stores NaN, mangles some payloads, and a payload nested deeper than 122 levels makes the whole
  collection unreadable: nothing reaches it unchecked;
* on a full disk it dies of SIGBUS, since it writes through memory maps, and cannot be opened again
  before there is room: free space is looked at first;
* what it has taken survives the end of the process, but not a loss of power: its log is synced
  before a write counts as confirmed (5 to 10 % of the time of writing where each segment is
  confirmed alone);
* it holds the interpreter's lock in every call: give it a process of its own.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge

from embedmill.batching import by_halves
from embedmill.embedder import Vectors
from embedmill.errors import (
    DamagedFileError,
    PermanentError,
    StopRunError,
    TransientError,
)
from embedmill.payload import Filter
from embedmill.settings import QdrantEmbeddedSettings
from embedmill.store_checks import check_batch, check_query
from embedmill.vector_store import CollectionSpec, Hit, Rejection, VectorBatch
from embedmill.vector_stores.qdrant_embedded_engine import EngineLog, config_of, engine_errors
from embedmill.vector_stores.qdrant_embedded_filters import filter_of
from embedmill.vector_stores.qdrant_embedded_index import (
    IndexBuild,
    note_written,
    unindexed,
    written_since,
)
from embedmill.vector_stores.qdrant_embedded_upserts import (
    QDRANT_EMBEDDED_LIMITS,
    check_not_all,
    packed,
    upsert_of,
)
from embedmill.vector_stores.store_folder import (
    StoreFolder,
    disk_error,
    sync_tree,
)

log = logging.getLogger(__name__)
# Two of the engine's log files (32 MiB each, made in advance) and its memory maps; beyond that a
# write needs about three times its own bytes.
RESERVED_BYTES = 96 * 2**20
# The engine keeps its log until told to flush; this bounds the log on disk and the time to open
# again (about 2 s), and costs 3 % at most.
_FLUSH_BYTES = 256 * 2**20
_PAGE = 10_000


class QdrantEmbeddedStore:
    """A :class:`~embedmill.vector_store.VectorStore` over qdrant-edge; one owner per folder.

    Collections stay open once used, since opening reads the engine's log again. Search compares
    with every record (exact, about 2 ms per 20,000 records of 384 dimensions, 40 ms with a filter)
    until :meth:`finish` has made an index.

    Raises:
        IndexLockedError: somebody else has the folder.
        StopRunError: the folder cannot be used.
    """

    limits = QDRANT_EMBEDDED_LIMITS

    def __init__(
        self,
        settings: QdrantEmbeddedSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._clock = clock
        self._builds: dict[str, IndexBuild] = {}
        self._written: Counter[str] = Counter()
        self._folder = StoreFolder(Path(settings.path), "qdrant_embedded")
        self._shards: dict[str, qdrant_edge.EdgeShard] = {}
        self._logs: dict[str, EngineLog] = {}
        self._opening = threading.Lock()
        self._unflushed: dict[str, int] = {}
        self._unsynced: set[str] = set()
        self._confirms_later = False

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create; doing it again with the same spec changes nothing."""

        def fill(records: Path) -> None:
            self._check_room(0)
            with engine_errors(self._folder.path, StopRunError):
                # No index on doc_id: it took 6 % of the writing rate, and filters on it are rare.
                qdrant_edge.EdgeShard.create(str(records), config_of(spec)).close()
            sync_tree(records)

        self._folder.create(collection, spec, fill)

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole, synced to disk before it returns or :meth:`confirmed_together`."""
        good, rows, rejections = check_batch(batch, self._folder.spec(collection), self.limits)
        if not rows:
            return rejections
        size, packs = packed(good, self.limits)
        self._check_room(size)
        shard = self._shard(collection)
        refused: dict[int, PermanentError] = {}
        for part in packs:
            refused |= by_halves(part.rows, lambda some: self._put(shard, good, some))
        check_not_all(refused, len(rows))
        self._confirm(collection, size)
        self._written[collection] += len(rows)
        rejections += [Rejection(rows[r], e.code, str(e)) for r, e in refused.items()]
        return sorted(rejections, key=lambda rejection: rejection.row)

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, synced as :meth:`upsert` does it; absent ids are no error."""
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

    @contextmanager
    def confirmed_together(self, collection: str) -> Iterator[None]:
        """Sync what is written within the block once, at its end; see ``vector_store``."""
        self._confirms_later = True
        try:
            yield
        finally:
            self._confirms_later = False
        self._sync(collection)

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
        """Return at most ``k`` nearest records, best first.

        Exact with ``exact_search``, and while the collection has no index.
        """
        name = self._folder.resolve(collection)
        check_query(name, vector, k, self._folder.spec(name))
        shard = self._shard(name)
        request = qdrant_edge.QueryRequest(
            limit=k,
            query=qdrant_edge.Query.Nearest(vector.tolist()),
            filter=filter_of(where),
            params=qdrant_edge.SearchParams(
                exact=self._settings.exact_search, hnsw_ef=self._settings.search_ef
            ),
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

    def finish(self, collection: str, *, deadline_s: float = 600.0) -> None:
        """Have a search index made when enough records are without, and wait until it is there.

        Whatever needs the collection before that ends the making. An index that cannot be made is
        no failure: search goes on without.

        Args:
            collection: whose load is over.
            deadline_s: seconds to wait.

        Raises:
            TransientError: it is not ready by then; the making goes on, ask again later.
        """
        build = self._builds.get(collection) or self._begin(collection)
        if build is None:
            return
        if not build.wait(deadline_s, self._clock, self._sleep):
            raise TransientError(
                f"the index of {collection!r} is not ready after {deadline_s:g} seconds",
                code="optimising",
            )
        failure = self._end(collection)
        if failure:
            log.warning("no search index was made for %r: %s", collection, failure)

    def tidy(self, collection: str) -> None:
        """Do after a run what its writes have put off; see :meth:`finish`."""
        self.finish(collection)

    def drop_collection(self, collection: str) -> None:
        """Delete a collection with all records; absent is no error."""
        self._folder.check_droppable(collection)
        self._end(collection)
        shard = self._shards.pop(collection, None)
        if shard is not None:
            shard.close()
        self._folder.drop(collection)

    def close(self) -> None:
        """Flush where there is room, and let go of the folder."""
        for collection in list(self._builds):
            self._end(collection)
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

    def _begin(self, collection: str) -> IndexBuild | None:
        """Have an index made, when the collection is large enough for one."""
        shard, spec = self._shard(collection), self._folder.spec(collection)
        place = self._folder.records_of(collection).parent
        written = written_since(place) + self._written.pop(collection, 0)
        with engine_errors(self._folder.path, StopRunError):
            due = max(unindexed(shard), written) >= self._settings.index_from
            note_written(place, 0 if due else written)
            if not due:
                return None
            shard.flush()
        del self._shards[collection]
        shard.close()
        self._unflushed.pop(collection, None)
        # Parts of a collection are indexed one by one, so that half of it counts as large.
        threshold = self._settings.index_from * spec.dimension * 4 // 2
        records = self._folder.records_of(collection)
        build = IndexBuild(records, spec, threshold, self._folder.lock)
        self._folder.say_who(build.pid, "which makes its search index")
        self._builds[collection] = build
        return build

    def _end(self, collection: str) -> str:
        build = self._builds.pop(collection, None)
        if build is None:
            return ""
        failure = build.end()
        self._folder.say_who(os.getpid())
        return failure

    def _shard(self, collection: str) -> qdrant_edge.EdgeShard:
        self._folder.spec(collection)
        self._end(collection)
        # Readers are shared by threads, and the engine opens a collection only once.
        with self._opening:
            shard = self._shards.get(collection)
            if shard is None:
                self._check_room(0)
                records = self._folder.records_of(collection)
                with engine_errors(self._folder.path, DamagedFileError):
                    shard = qdrant_edge.EdgeShard.load(str(records))
                self._shards[collection] = shard
                self._logs[collection] = EngineLog(records / "wal")
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
            # Rows are neighbours: whatever they were cut to, they came from one range.
            shard.update(upsert_of(records, slice(rows[0], rows[-1] + 1)))

    def _confirm(self, collection: str, size: int) -> None:
        self._unflushed[collection] = self._unflushed.get(collection, 0) + size
        with engine_errors(self._folder.path, StopRunError):
            if self._unflushed[collection] >= _FLUSH_BYTES:
                self._shards[collection].flush()
                self._unflushed[collection] = 0
        self._unsynced.add(collection)
        if not self._confirms_later:
            self._sync(collection)

    def _sync(self, collection: str) -> None:
        if collection in self._unsynced:
            with engine_errors(self._folder.path, StopRunError):
                self._logs[collection].sync()
            self._unsynced.discard(collection)

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


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _uuid(value: UUID | str | int) -> UUID:
    return value if isinstance(value, UUID) else UUID(str(value))
