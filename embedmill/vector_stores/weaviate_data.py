"""The objects of one collection of Weaviate: found, counted, listed and deleted.

A collection with tenants is asked tenant by tenant; which one a record is in follows from its
metadata, and is not known to who has only its id.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
from weaviate.classes.query import Filter as Where
from weaviate.classes.query import MetadataQuery

from embedmill.embedder import Vectors
from embedmill.errors import OutcomeUnknownError, StopRunError, TransientError
from embedmill.payload import Filter, Scalar, conditions_of
from embedmill.plain_numbers import number_of
from embedmill.recipe import Metric
from embedmill.throttle import RequestPace
from embedmill.vector_store import Hit, VectorBatch
from embedmill.vector_stores.weaviate_client import WeaviateConnection
from embedmill.vector_stores.weaviate_names import NO_TEXT, tenant_name
from embedmill.vector_stores.weaviate_records import READ, payload_of, wanted_tokens
from embedmill.vector_stores.weaviate_schema import FIND, VECTOR
from embedmill.vector_stores.weaviate_schema import Collection as CollectionFacts

# Of one answer with vectors: 2 MB at 1,536 components.
_FETCHED = 256
# Of one page without anything; a server gives at most 10,000.
_LISTED = 2000
# Ids of one deletion. A server handles 10,000 at most (QUERY_MAXIMUM_RESULTS, as delivered), and
# looks up one after the other what a filter names.
_DELETED = 2000
# Rounds of one deletion: each takes away at least what a server handles at once, or nothing.
_ROUNDS = 100
# Tenants that a message names.
_NAMED = 3


class Objects:
    """The objects of one collection."""

    def __init__(
        self,
        connection: WeaviateConnection,
        class_name: str,
        collection: CollectionFacts,
        pace: RequestPace,
    ) -> None:
        self._pace = pace
        self._connection = connection
        self._class_name = class_name
        self._collection = collection

    def tenants(self, among: Collection[str] | None = None) -> Sequence[str | None]:
        """Its tenants, or those of them that are ``among``; a single None for a collection without.

        Raises:
            StopRunError: the files of one are in the cloud.
            TransientError: they are on their way here.
        """
        if self._collection.tenant_key is None:
            return [None]
        with self._connection.errors(f"listing the tenants of {self._class_name!r}", "read"):
            found = self._connection.collection(self._class_name).tenants.get()
        states = {
            name: str(tenant.activity_status.value)
            for name, tenant in found.items()
            if among is None or name in among
        }
        _check_states(self._class_name, states)
        return sorted(states)

    def fetch(self, ids: Sequence[UUID]) -> VectorBatch:
        """Records that exist, in the order of ``ids``."""
        found: dict[UUID, Any] = {}
        for tenant in self.tenants():
            missing = [record for record in ids if record not in found]
            for start in range(0, len(missing), _FETCHED):
                some = missing[start : start + _FETCHED]
                found.update((one.uuid, one) for one in self._fetched(some, tenant))
        present = [record for record in ids if record in found]
        vectors = [found[record].vector[VECTOR] for record in present]
        dimension = self._collection.spec.dimension
        return VectorBatch(
            ids=present,
            vectors=np.array(vectors, dtype=np.float32).reshape(len(present), dimension),
            payloads=[payload_of(found[record].properties) for record in present],
        )

    def search(self, vector: Vectors, k: int, where: Filter | None) -> list[Hit]:
        """Nearest records, best first."""
        tokens = wanted_tokens(where)
        if not all(tokens):
            return []
        conditions = [Where.by_property(FIND).contains_any(some) for some in tokens]
        filters = Where.all_of(conditions) if conditions else None
        hits: list[Hit] = []
        for tenant in self._searched(where):
            with self._connection.errors(f"searching {self._class_name!r}", "read"):
                reply = self._connection.collection(self._class_name, tenant).query.near_vector(
                    vector.tolist(),
                    target_vector=VECTOR,
                    limit=k,
                    filters=filters,
                    return_metadata=MetadataQuery(distance=True),
                    return_properties=READ,
                )
                hits += [
                    Hit(UUID(int=one.uuid.int), self._score(one), payload_of(one.properties))
                    for one in reply.objects
                ]
        best = heapq.nsmallest if self._collection.spec.metric == "euclid" else heapq.nlargest
        return best(k, hits, key=lambda hit: hit.score)

    def count(self) -> int:
        """Number of objects."""
        total = 0
        for tenant in self.tenants():
            with self._connection.errors(f"counting {self._class_name!r}", "read"):
                used = self._connection.collection(self._class_name, tenant)
                counted = used.aggregate.over_all(total_count=True).total_count
            if counted is None:
                raise TransientError(f"counting {self._class_name!r}: no count", code="reply")
            total += counted
        return total

    def ids(self) -> Iterator[UUID]:
        """Every id once."""
        for tenant in self.tenants():
            yield from self._listed(tenant)

    def delete(self, ids: Sequence[UUID], tenants: Sequence[str | None]) -> None:
        """Delete objects from tenants; absent is no error."""
        for tenant in tenants:
            for start in range(0, len(ids), _DELETED):
                some = ids[start : start + _DELETED]
                self._pace(partial(self._delete, some, tenant), 0)

    def _fetched(self, ids: Sequence[UUID], tenant: str | None) -> list[Any]:
        with self._connection.errors(f"fetching from {self._class_name!r}", "read"):
            reply = self._connection.collection(self._class_name, tenant).query.fetch_objects(
                filters=Where.by_id().contains_any(list(ids)),
                limit=len(ids),
                include_vector=True,
                return_properties=READ,
            )
            return list(reply.objects)

    def _searched(self, where: Filter | None) -> Sequence[str | None]:
        """Tenants that can hold what a filter lets through."""
        wanted: list[Scalar] | None = conditions_of(where).get(
            f"metadata.{self._collection.tenant_key}"
        )
        if wanted is None:
            return self.tenants()
        # A list of texts, one of which may be wanted, is in the tenant of what is no text.
        return self.tenants({NO_TEXT, *map(tenant_name, wanted)})

    def _score(self, found: Any) -> float:  # noqa: ANN401, the client's object
        distance = float(found.metadata.distance)
        metric: Metric = self._collection.spec.metric
        if metric == "euclid":
            return math.sqrt(max(distance, 0.0))
        return 1 - distance if metric == "cosine" else -distance

    def _listed(self, tenant: str | None) -> Iterator[UUID]:
        after: UUID | None = None
        while True:
            with self._connection.errors(f"listing the ids of {self._class_name!r}", "read"):
                used = self._connection.collection(self._class_name, tenant)
                page = used.query.fetch_objects(
                    limit=_LISTED, after=after, return_properties=[]
                ).objects
            if not page:
                return
            yield from (UUID(int=one.uuid.int) for one in page)
            after = UUID(int=page[-1].uuid.int)

    def _delete(self, ids: Sequence[UUID], tenant: str | None) -> None:
        where = Where.by_id().contains_any(list(ids))
        left = len(ids)
        for _ in range(_ROUNDS):
            with self._connection.errors(f"deleting from {self._class_name!r}", "change"):
                used = self._connection.collection(self._class_name, tenant)
                reply = used.data.delete_many(where)
            if reply.failed:
                break
            # A server handles so many at once and may say so or not; what is absent it never
            # matches. So it is done when all were there, or nothing more is.
            left -= reply.successful
            if left <= 0 or not reply.matches:
                return
        raise OutcomeUnknownError(
            f"deleting from {self._class_name!r}: {left:,} of {number_of(len(ids), 'record')} may "
            "be left",
            code="not-deleted",
        )


def _check_states(class_name: str, states: Mapping[str, str]) -> None:
    """Refuse tenants that nobody can ask: what is in them would count as missing.

    An inactive one is no trouble: our collections activate their tenants when they are asked.
    """
    away = [name for name, state in states.items() if state in {"OFFLOADED", "OFFLOADING"}]
    if away:
        raise StopRunError(
            f"tenants of collection {class_name} are offloaded, {len(away)} of them: "
            f"{', '.join(sorted(away)[:_NAMED])}",
            code="tenant-offloaded",
            hint="bring them back (set them ACTIVE, which may take a while), then run again",
        )
    coming = [name for name, state in states.items() if state == "ONLOADING"]
    if coming:
        raise TransientError(
            f"tenants of collection {class_name} are being brought back: "
            f"{', '.join(sorted(coming)[:_NAMED])}",
            code="tenant-loading",
        )
