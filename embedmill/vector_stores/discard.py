"""Counts records and drops them: what the pipeline costs without a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import numpy as np

from embedmill.embedder import Vectors
from embedmill.errors import RefusedError
from embedmill.payload import Filter
from embedmill.settings import DiscardStoreSettings
from embedmill.store_checks import check_batch
from embedmill.vector_store import CollectionSpec, Hit, Rejection, StoreLimits, VectorBatch
from embedmill.vector_stores.key_log import KeyLog, Keys
from embedmill.vector_stores.store_folder import StoreFolder

# Nothing is sent, so that only the checks limit anything: a payload as large as other stores take.
DISCARD_LIMITS = StoreLimits(
    records=10_000, request_bytes=256 * 2**20, payload_bytes=8 * 2**20, writers=1
)
_LOW = 2**64 - 1


def keys_of(ids: Sequence[UUID]) -> Keys:
    """64 bits per id: its two halves, combined so that the version bits do not show.

    Two of n ids meet with a probability of about n**2 / 2**65: 1 in 370,000 for ten million; then
    the count is too low by one.
    """
    numbers = [record.int for record in ids]
    return np.array([(n >> 64) ^ (n & _LOW) for n in numbers], dtype=np.uint64)


class DiscardStore:
    """A :class:`~embedmill.vector_store.VectorStore` that checks, counts and forgets.

    Counts are those of a real store: overwriting adds nothing, deleting takes away once. A record
    costs 8 bytes on disk and 8 in memory, 20 for moments. Counts survive the end of the process.

    Raises:
        IndexLockedError: somebody else has the folder.
        StopRunError: the folder cannot be used.
    """

    limits = DISCARD_LIMITS

    def __init__(self, settings: DiscardStoreSettings) -> None:
        self._folder = StoreFolder(Path(settings.path), "discard")
        self._logs: dict[str, KeyLog] = {}

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create; doing it again with the same spec changes nothing."""
        self._folder.create(collection, spec, lambda _: None)

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Check and count records; the rows that a store would not take come back."""
        log = self._log(collection)
        good, _, rejections = check_batch(batch, self._folder.spec(collection), self.limits)
        log.add(keys_of(good.ids))
        return rejections

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Count records no more; absent ids are no error."""
        self._log(collection).remove(keys_of(ids))

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:  # noqa: ARG002 (contract)
        """Refused: there is nothing to return."""
        self._refuse(collection)

    def search(
        self,
        collection: str,
        vector: Vectors,  # noqa: ARG002 (contract)
        k: int,  # noqa: ARG002 (contract)
        where: Filter | None = None,  # noqa: ARG002 (contract)
    ) -> Sequence[Hit]:
        """Refused: there is nothing to search."""
        self._refuse(collection)

    def count(self, collection: str) -> int:
        """Number of distinct records, see :func:`keys_of`."""
        return len(self._log(self._folder.resolve(collection)))

    def ids(self, collection: str) -> Iterator[UUID]:
        """Refused: the ids were not kept."""
        self._refuse(collection)

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
        """Delete a collection with its count; absent is no error."""
        self._folder.check_droppable(collection)
        log = self._logs.pop(collection, None)
        if log is not None:
            log.close()
        self._folder.drop(collection)

    def close(self) -> None:
        """Let go of the folder."""
        try:
            while self._logs:
                self._logs.popitem()[1].close()
        finally:
            self._folder.close()

    def _log(self, collection: str) -> KeyLog:
        self._folder.spec(collection)
        if collection not in self._logs:
            self._logs[collection] = KeyLog(self._folder.records_of(collection) / "keys.log")
        return self._logs[collection]

    def _refuse(self, collection: str) -> NoReturn:
        self._folder.spec(self._folder.resolve(collection))
        raise RefusedError(
            "the store 'discard' only counts: it keeps no records to read or search",
            code="counts-only",
            hint="choose the store qdrant_embedded (or memory) to search",
        )
