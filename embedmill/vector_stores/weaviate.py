"""A Weaviate server, through its official client.

The client's batches are not used: they answer before anything was sent, and keep errors in lists
that nobody has to read. Records travel in requests of our own size, and each object's own error is
read. What a collection was made for stands in its description on the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from uuid import UUID

from embedmill.embedder import Vectors
from embedmill.errors import OutcomeUnknownError, RefusedError, StopRunError, TransientError
from embedmill.payload import Filter
from embedmill.plain_numbers import number_of
from embedmill.store_checks import check_batch, check_name, check_query, check_same_spec
from embedmill.throttle import RequestPace, at_once
from embedmill.vector_store import CollectionSpec, Hit, Rejection, VectorBatch
from embedmill.vector_stores.weaviate_client import WeaviateConnection
from embedmill.vector_stores.weaviate_data import Objects
from embedmill.vector_stores.weaviate_limits import weaviate_limits
from embedmill.vector_stores.weaviate_names import PREFIX, class_name, name_of_class, tenant_name
from embedmill.vector_stores.weaviate_pointers import Pointers
from embedmill.vector_stores.weaviate_records import tenant_value
from embedmill.vector_stores.weaviate_schema import (
    Collection,
    collection_of,
    column_property,
    missing_columns,
    new_class,
)
from embedmill.vector_stores.weaviate_upserts import Upserts
from embedmill.weaviate_settings import WeaviateSettings

# Between two looks at a collection that is being indexed.
_LOOK_AGAIN_S = 1.0
# Counts in a row that have to agree where copies may lag behind each other, and how long that may
# take; the last one counts then.
_LOOKS = 3
_BETWEEN_COUNTS_S = 0.2
_COUNT_SETTLES_S = 10.0


class WeaviateStore:
    """A :class:`~embedmill.vector_store.VectorStore` on Weaviate; for one thread at a time.

    A filter's key ``metadata.KEY`` means the key of a document's metadata. Nothing is asked of the
    server before the first call.

    Raises:
        SettingsError: the key's environment variable is not set.
    """

    def __init__(
        self,
        settings: WeaviateSettings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        pace: RequestPace = at_once,
    ) -> None:
        self.limits = weaviate_limits(settings)
        self._settings = settings
        self._connection = WeaviateConnection(settings)
        self._pointers = Pointers(self._connection)
        self._known: dict[str, Collection] = {}
        self._tenants: dict[str, set[str]] = {}
        self._sleep = sleep
        self._pace = pace
        self._clock = clock

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create, with all its properties; doing it again with the same spec changes nothing.

        Properties that the settings have got since are added.

        Raises:
            OutcomeUnknownError: it may have been created; doing it again is safe.
        """
        check_name(collection)
        theirs = class_name(collection)
        if theirs in self._aliases():
            raise RefusedError(f"{collection!r} is an alias already")
        found = self._look(collection)
        if found is None:
            # False when another writer was faster; what it made is checked like any other.
            self._connection.create(new_class(self._settings, theirs, collection, spec))
            found = self._must_be_there(collection)
        check_same_spec(collection, found.spec, spec)
        missing = missing_columns(self._settings, found)
        for key, kind in missing:
            self._connection.add_property(theirs, column_property(key, kind))
        self._known[collection] = self._must_be_there(collection) if missing else found

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole; every object's own answer is read."""
        found = self._written(collection)
        good, rows, rejections = check_batch(batch, found.spec, self.limits)
        writer = Upserts(self._connection, class_name(collection), self.limits, self._pace)
        if found.tenant_key is None:
            writer.write(found, good, rows, None)
        else:
            self._write_to_tenants(writer, found, good, rows)
        rejections += [
            Rejection(row, error.code, str(error)) for row, error in writer.refused().items()
        ]
        return sorted(rejections, key=lambda rejection: rejection.row)

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, confirmed before it returns; absent ids are no error."""
        objects = self._objects(self._written(collection))
        if ids:
            objects.delete(ids, objects.tenants())

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """Return the records that exist, in the order of ``ids``."""
        return self._objects(self._read(collection)).fetch(ids)

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first, by the server's own approximation."""
        found = self._read(collection)
        check_query(found.name, vector, k, found.spec)
        return self._objects(found).search(vector, k, where)

    def count(self, collection: str) -> int:
        """Exact number of records.

        A count is one copy's, whatever ``consistency`` says: where there are several it is believed
        once it stands still.
        """
        found = self._read(collection)
        objects = self._objects(found)
        counts = [objects.count()]
        if found.copies > 1:
            until = self._clock() + _COUNT_SETTLES_S
            while len(counts) < _LOOKS or len(set(counts[-_LOOKS:])) > 1:
                if self._clock() >= until:
                    break
                self._sleep(_BETWEEN_COUNTS_S)
                counts.append(objects.count())
        return counts[-1]

    def ids(self, collection: str) -> Iterator[UUID]:
        """Every record id once, read page by page."""
        return self._objects(self._read(collection)).ids()

    def collections(self) -> Sequence[str]:
        """Names of our collections, sorted; those of others are not."""
        names = []
        for described in self._connection.schema():
            name = str(described["class"])
            if name.startswith(PREFIX):
                with suppress(RefusedError):
                    names.append(collection_of(name, described).name)
        return sorted(names)

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection`` in one step.

        Raises:
            OutcomeUnknownError: it may have been moved; doing it again is safe.
        """
        check_name(alias)
        self._written(collection)
        if self._look(alias) is not None:
            raise RefusedError(f"{alias!r} is a collection and cannot be an alias")
        try:
            self._point(class_name(alias), class_name(collection))
        except OutcomeUnknownError:
            # What the reply left open is settled by looking.
            if not self._points_at(alias, collection):
                raise
            return
        # The client takes any page with status 200 for an answer.
        if self.alias_target(alias) != collection:
            raise OutcomeUnknownError(
                f"alias {alias!r} does not point at {collection!r} yet", code="alias"
            )

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None."""
        target = self._target(class_name(alias))
        return None if target is None else self._name_of(target)

    def drop_collection(self, collection: str) -> None:
        """Delete a collection with all records; absent is no error.

        Raises:
            OutcomeUnknownError: it may be gone; doing it again is safe.
        """
        check_name(collection)
        theirs = class_name(collection)
        holders = sorted(name for name, target in self._aliases().items() if target == theirs)
        if holders:
            # The server would leave an alias to nothing.
            holder = name_of_class(holders[0]) or holders[0]
            raise RefusedError(f"alias {holder!r} points at collection {collection!r}")
        self._known.pop(collection, None)
        self._tenants.pop(collection, None)
        if self._look(collection) is not None:
            self._connection.drop(theirs)
            if self._look(collection) is not None:
                raise OutcomeUnknownError(f"collection {collection!r} is still there", code="drop")

    def finish(self, collection: str) -> None:
        """Wait until the server has indexed what it has stored, if it does so in its own time.

        Raises:
            TransientError: it is not done by then; the server goes on, ask again later.
            StopRunError: it has made a shard read-only.
        """
        self._written(collection)
        until = self._clock() + self._settings.index_timeout_s
        while True:
            states = self._connection.shard_states(class_name(collection))
            if any(state == "READONLY" for state, _ in states):
                raise StopRunError(
                    f"a shard of collection {collection!r} is read-only",
                    code="read-only",
                    hint="see the server's log and disk, then set its shards to READY again",
                )
            waiting = sum(queue for _, queue in states)
            if not waiting and all(state == "READY" for state, _ in states):
                return
            if self._clock() >= until:
                raise TransientError(
                    f"not indexed: {number_of(waiting, 'vector')} of collection {collection!r} "
                    f"after {self._settings.index_timeout_s:g} seconds",
                    code="indexing",
                )
            self._sleep(_LOOK_AGAIN_S)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _write_to_tenants(
        self, writer: Upserts, found: Collection, batch: VectorBatch, rows: Sequence[int]
    ) -> None:
        """Write each record to its tenant, then take it out of all others: it may have moved."""
        key = found.tenant_key or ""
        objects = self._objects(found)
        known = self._tenants.get(found.name)
        if known is None:
            known = {tenant for tenant in objects.tenants() if tenant is not None}
        by_tenant: dict[str, list[int]] = {}
        for at, payload in enumerate(batch.payloads):
            by_tenant.setdefault(tenant_name(tenant_value(payload, key)), []).append(at)
        for tenant, some in by_tenant.items():
            writer.write(found, batch.take(some), [rows[at] for at in some], tenant)
        for tenant in known:
            here = set(by_tenant.get(tenant, ()))
            elsewhere = [record for at, record in enumerate(batch.ids) if at not in here]
            if elsewhere:
                objects.delete(elsewhere, [tenant])
        # A record has one writer, so other writers' new tenants hold none of this one's.
        self._tenants[found.name] = known | set(by_tenant)

    def _objects(self, found: Collection) -> Objects:
        return Objects(self._connection, class_name(found.name), found, self._pace)

    def _aliases(self) -> dict[str, str]:
        if self._connection.has_aliases:
            return self._connection.aliases()
        return self._pointers.all()

    def _target(self, alias: str) -> str | None:
        if self._connection.has_aliases:
            return self._connection.alias_target(alias)
        return self._pointers.all().get(alias)

    def _point(self, alias: str, target: str) -> None:
        if self._connection.has_aliases:
            self._connection.point_alias(alias, target)
        else:
            self._pointers.point(alias, target)

    def _points_at(self, alias: str, collection: str) -> bool:
        try:
            return self.alias_target(alias) == collection
        except TransientError:
            return False

    def _name_of(self, theirs: str) -> str:
        name = name_of_class(theirs)
        if name is not None:
            return name
        described = self._connection.definition(theirs)
        return theirs if described is None else collection_of(theirs, described).name

    def _look(self, name: str) -> Collection | None:
        theirs = class_name(name)
        described = self._connection.definition(theirs)
        return None if described is None else collection_of(theirs, described)

    def _must_be_there(self, name: str) -> Collection:
        found = self._look(name)
        if found is None:
            raise OutcomeUnknownError(
                f"collection {name!r} was created and is not there", code="creation"
            )
        return found

    def _written(self, name: str) -> Collection:
        """The collection of that name; an alias would be followed by the server, and is none."""
        found = self._known.get(name)
        if found is None:
            found = self._look(name)
        if found is None:
            raise RefusedError(f"there is no collection {name!r}", code="no-collection")
        self._known[name] = found
        return found

    def _read(self, name: str) -> Collection:
        """The collection that a reader means: of that name, or what an alias points at."""
        if name in self._known:
            return self._known[name]
        target = self._target(class_name(name))
        return self._written(name if target is None else self._name_of(target))
