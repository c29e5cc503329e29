"""A Qdrant server, through its official client.

The client's own uploaders are not used: they repeat every error at once, bad requests too, and do
not wait for the server. Records travel by REST as JSON that is written from the array itself, or by
gRPC where the settings say so; everything else is a plain call of the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import numpy as np
from qdrant_client import QdrantClient, models

from embedmill.embedder import Vectors
from embedmill.errors import OutcomeUnknownError, RefusedError, StopRunError, TransientError
from embedmill.payload import Filter
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.settings_file import resolve_secret
from embedmill.store_checks import check_name, check_query, check_same_spec
from embedmill.throttle import RequestPace, at_once
from embedmill.vector_store import CollectionSpec, Hit, Rejection, VectorBatch
from embedmill.vector_stores.qdrant_collections import (
    Collection,
    collection_of,
    new_collection,
    payload_indexes,
    wanted_graph,
)
from embedmill.vector_stores.qdrant_errors import confirmed, server_errors
from embedmill.vector_stores.qdrant_filters import filter_of, matches_nothing
from embedmill.vector_stores.qdrant_limits import qdrant_limits
from embedmill.vector_stores.qdrant_upserts import Upserts
from embedmill.vector_stores.server_words import Effect

# Ids in one request: 400 kB.
_IDS = 10_000
# Records in one answer with their vectors: 8 MB at 1,536 components.
_FETCHED = 256
# Between two looks at a collection that is being optimised: the first, and the longest later on.
_FIRST_LOOK_S = 0.1
_LATER_LOOK_S = 5.0


class QdrantStore:
    """A :class:`~embedmill.vector_store.VectorStore` on a Qdrant server; for one thread at a time.

    A filter's key ``metadata.KEY`` means the key of a document's metadata. What a collection was
    made for stands in its own metadata on the server.

    Raises:
        SettingsError: the key's environment variable is not set.
    """

    def __init__(
        self,
        settings: QdrantServerSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        pace: RequestPace = at_once,
    ) -> None:
        self.limits = qdrant_limits(settings)
        self._settings = settings
        self._secret = resolve_secret(settings.api_key) if settings.api_key else ""
        self._client: QdrantClient | None = _connected(settings, self._secret)
        self._pace = pace
        self._upserts = Upserts(self._client, settings, self._secret, pace)
        self._known: dict[str, Collection] = {}
        self._sleep = sleep
        self._clock = clock

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create, with its payload indexes; doing it again with the same spec changes nothing.

        A creation that broke off half-way is completed. See ``bulk_load`` in the settings for the
        graph, which :meth:`finish` or :meth:`set_alias` builds.

        Raises:
            OutcomeUnknownError: it may have been created; doing it again is safe.
        """
        check_name(collection)
        client = self._open()
        if collection in self._aliases():
            raise RefusedError(f"{collection!r} is an alias already")
        found = self._look(collection)
        if found is None:
            found = self._create(collection, spec)
        check_same_spec(collection, found.spec, spec)
        for path, schema in payload_indexes(self._settings):
            if path not in found.indexes:
                doing = f"indexing {path} of {collection!r}"
                with self._errors(doing, "change"):
                    result = client.create_payload_index(collection, path, schema, wait=True)
                confirmed(result.status.value, doing)
        if self._settings.bulk_load == "on" and found.graph_m and not self.count(collection):
            self._set_graph(collection, 0)
        self._known[collection] = found

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole, applied by the server before it returns."""
        found = self._written(collection)
        return self._upserts.upsert(collection, found, batch, self.limits)

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, applied by the server before it returns; absent ids are no error."""
        self._written(collection)
        for start in range(0, len(ids), _IDS):
            some: list[Any] = list(map(str, ids[start : start + _IDS]))
            self._pace(partial(self._delete, collection, some), 0)

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """Return the records that exist, in the order of ``ids``."""
        name, source = self._read(collection)
        client, page = self._open(), min(_FETCHED, source.page or _FETCHED)
        found: dict[UUID, models.Record] = {}
        for start in range(0, len(ids), page):
            some: list[Any] = list(map(str, ids[start : start + page]))
            with self._errors(f"fetching from {name!r}", "read"):
                records = client.retrieve(name, some, with_payload=True, with_vectors=True)
            found.update((UUID(str(record.id)), record) for record in records)
        present = [record for record in ids if record in found]
        vectors = np.array([found[record].vector for record in present], dtype=np.float32)
        return VectorBatch(
            ids=present,
            vectors=vectors.reshape(len(present), source.spec.dimension),
            payloads=[found[record].payload or {} for record in present],
        )

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first.

        Exact with ``exact_search``, and while the collection is so small that it has no graph.
        """
        name, source = self._read(collection)
        check_query(name, vector, k, source.spec)
        conditions = filter_of(where)
        if matches_nothing(where):
            return []
        params = models.SearchParams(
            exact=self._settings.exact_search or None, hnsw_ef=self._settings.search_ef
        )
        with self._errors(f"searching {name!r}", "read"):
            reply = self._open().query_points(
                name,
                query=vector.tolist(),
                query_filter=conditions,
                search_params=params,
                limit=k,
                with_payload=True,
            )
        return [Hit(UUID(str(p.id)), p.score, p.payload or {}) for p in reply.points]

    def count(self, collection: str) -> int:
        """Exact number of records."""
        name, _ = self._read(collection)
        with self._errors(f"counting {name!r}", "read"):
            return self._open().count(name, exact=True).count

    def ids(self, collection: str) -> Iterator[UUID]:
        """Every record id once, read page by page."""
        name, source = self._read(collection)
        return self._scroll(name, min(_IDS, source.page or _IDS))

    def collections(self) -> Sequence[str]:
        """Names of the collections that exist, sorted; those of others too."""
        client = self._open()
        with self._errors("listing the collections", "read"):
            return sorted(found.name for found in client.get_collections().collections)

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection`` in one step; its graph is being built from then on.

        One action that creates the alias also moves it. Deleting it first, in the same request,
        would not be safer: the server applies actions in order and takes none back, so that a
        refused second one would leave no alias at all.

        Raises:
            OutcomeUnknownError: it may have been moved; doing it again is safe.
            StopRunError: the server's optimiser has failed on the collection.
        """
        check_name(alias)
        self._written(collection)
        if alias in self.collections():
            raise RefusedError(f"{alias!r} is a collection and cannot be an alias")
        self._build_graph(collection)
        move = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=collection, alias_name=alias)
        )
        doing = f"pointing alias {alias!r} at {collection!r}"
        try:
            with self._errors(doing, "change"):
                done = self._open().update_collection_aliases([move])
        except OutcomeUnknownError:
            if not self._points_at(alias, collection):
                raise
            return
        if not done:
            raise OutcomeUnknownError(f"{doing}: the server does not say that it did", code="alias")

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None."""
        return self._aliases().get(alias)

    def drop_collection(self, collection: str) -> None:
        """Delete a collection with all records; absent is no error.

        Raises:
            OutcomeUnknownError: it may be gone; doing it again is safe.
        """
        holders = sorted(a for a, target in self._aliases().items() if target == collection)
        if holders:
            # The server would drop the alias with it, and not say so.
            raise RefusedError(f"alias {holders[0]!r} points at collection {collection!r}")
        self._known.pop(collection, None)
        with self._errors(f"dropping {collection!r}", "change"):
            self._open().delete_collection(collection)

    def finish(self, collection: str, *, deadline_s: float = 600.0) -> None:
        """Have the graph built that loading put off, and wait until it is there.

        Args:
            collection: whose load is over.
            deadline_s: seconds to wait.

        Raises:
            TransientError: it is not ready by then; the server goes on, ask again later.
            StopRunError: the server's optimiser has failed.
        """
        self._written(collection)
        self._build_graph(collection)
        until, greens, pause = self._clock() + deadline_s, 0, _FIRST_LOOK_S
        # Twice: right after a change the server may not have noticed yet what there is to do.
        while greens < 2:
            status = self._unbroken(collection).status
            greens = greens + 1 if status == "green" else 0
            if greens < 2:
                if self._clock() >= until:
                    raise TransientError(
                        f"collection {collection!r} is still {status} after {deadline_s:g} seconds",
                        code="optimising",
                    )
                self._sleep(pause)
                pause = min(2 * pause, _LATER_LOOK_S)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _delete(self, collection: str, ids: list[Any]) -> None:
        doing = f"deleting from {collection!r}"
        with self._errors(doing, "change"):
            result = self._open().delete(collection, models.PointIdsList(points=ids), wait=True)
        confirmed(result.status.value, doing)

    def _open(self) -> QdrantClient:
        if self._client is None:
            raise RefusedError("the store was closed")
        return self._client

    def _errors(self, doing: str, effect: Effect) -> Any:  # noqa: ANN401, a context manager
        return server_errors(doing, effect, self._secret)

    def _aliases(self) -> dict[str, str]:
        client = self._open()
        with self._errors("listing the aliases", "read"):
            found = client.get_aliases().aliases
        return {entry.alias_name: entry.collection_name for entry in found}

    def _points_at(self, alias: str, collection: str) -> bool:
        try:
            return self.alias_target(alias) == collection
        except TransientError:
            return False

    def _look(self, name: str) -> Collection | None:
        """What is there under the name of a collection (or, for the server, an alias)."""
        try:
            return self._described(name)
        except RefusedError as error:
            if error.code != "no-collection":
                raise
            return None

    def _described(self, name: str) -> Collection:
        with self._errors(f"looking at {name!r}", "read"):
            info = self._open().get_collection(name)
        return collection_of(name, info)

    def _unbroken(self, name: str) -> Collection:
        found = self._described(name)
        if found.status == "red":
            raise StopRunError(
                f"collection {name!r} is red: the server could not optimise it",
                code="red",
                hint="see the server's log and its optimizer_status, then run the same again",
            )
        return found

    def _create(self, collection: str, spec: CollectionSpec) -> Collection:
        arguments = new_collection(self._settings, spec)
        try:
            with self._errors(f"creating {collection!r}", "change"):
                self._open().create_collection(collection, **arguments)
        except RefusedError as error:
            # Another writer was faster; what it made is checked like any other.
            if error.code != "http-409":
                raise
        return self._described(collection)

    def _written(self, name: str) -> Collection:
        """The collection of that name; an alias would be followed by the server, and is none."""
        self._open()
        found = self._known.get(name)
        if found is None:
            found = None if name in self._aliases() else self._look(name)
        if found is None:
            raise RefusedError(f"there is no collection {name!r}", code="no-collection")
        self._known[name] = found
        return found

    def _read(self, name: str) -> tuple[str, Collection]:
        """The collection of that name or alias, under its own name."""
        self._open()
        if name in self._known:
            return name, self._known[name]
        name = self._aliases().get(name, name)
        return name, self._written(name)

    def _scroll(self, name: str, page: int) -> Iterator[UUID]:
        offset: Any = None
        while True:
            with self._errors(f"listing the ids of {name!r}", "read"):
                records, offset = self._open().scroll(
                    name, limit=page, offset=offset, with_payload=False, with_vectors=False
                )
            yield from (UUID(str(record.id)) for record in records)
            if offset is None:
                return

    def _build_graph(self, collection: str) -> None:
        wanted = wanted_graph(self._settings)
        if self._unbroken(collection).graph_m == 0 and wanted:
            self._set_graph(collection, wanted)

    def _set_graph(self, collection: str, links: int) -> None:
        with self._errors(f"setting the graph of {collection!r}", "change"):
            self._open().update_collection(collection, hnsw_config=models.HnswConfigDiff(m=links))


def _connected(settings: QdrantServerSettings, secret: str) -> QdrantClient:
    return QdrantClient(
        url=settings.url,
        # As a header: given as a key the client warns about every server without TLS, this
        # machine's too. Whether that is wanted is decided by the settings.
        headers={"api-key": secret} if secret else None,
        grpc_port=settings.grpc_port,
        timeout=settings.timeout_s,
        check_compatibility=False,
        # One at a time is used; the client would open a new connection for each request to
        # this machine.
        limits=httpx.Limits(max_connections=4, max_keepalive_connections=4),
    )
