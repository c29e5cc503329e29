"""The contract of a vector store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from embedmill.embedder import Vectors
from embedmill.payload import Filter, Payload
from embedmill.recipe import Metric


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What one write may hold; data on the backend, read by the packer.

    Attributes:
        records: most records in one upsert.
        request_bytes: most bytes of one upsert, vectors and payloads together.
        payload_bytes: most bytes of one record's payload as JSON.
        writers: how many writers the store takes at once (1: one owner process).
    """

    records: int
    request_bytes: int
    payload_bytes: int
    writers: int


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """What a collection is made for; another spec under the same name is refused.

    Attributes:
        dimension: of every vector.
        metric: how the store compares.
        normalised: whether vectors must have norm 1.
    """

    dimension: int
    metric: Metric
    normalised: bool


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """Records as columns; all three have the same length and order.

    Attributes:
        ids: record ids.
        vectors: float32, shape (n, dimension).
        payloads: JSON objects.
    """

    ids: Sequence[UUID]
    vectors: Vectors
    payloads: Sequence[Payload]

    def take(self, rows: Sequence[int]) -> VectorBatch:
        """Return the given rows, in the given order."""
        return VectorBatch(
            ids=[self.ids[row] for row in rows],
            vectors=self.vectors[list(rows)],
            payloads=[self.payloads[row] for row in rows],
        )


@dataclass(frozen=True, slots=True)
class Rejection:
    """One record that the store, or our own check, will never take as it is.

    Attributes:
        row: in the batch that was given.
        code: short stable word (``dimension``, ``not-finite``, ``payload-too-large``).
        message: for a person; no record content in it.
    """

    row: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result; higher score is nearer for cosine and dot, lower for euclid."""

    id: UUID
    score: float
    payload: Payload


class VectorStore(Protocol):
    """One store. Instances are made where they are used and never travel.

    Collections and aliases are names of letters, digits, ``-``, ``_`` and ``.``, the first a letter
    or digit, at most 200 characters, and no name is both. ``fetch``, ``search``, ``count`` and
    ``ids`` take either; what writes takes a collection. A name that does not exist is a
    ``RefusedError`` everywhere, and so is every call after ``close``.

    A store may also have ``finish(collection)``, ``tidy(collection)`` and
    ``confirmed_together(collection)``: :func:`finish_collection`, :func:`tidy_collection` and
    :func:`confirmed_together` say what for.
    """

    limits: StoreLimits

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create; doing it again with the same spec changes nothing.

        Raises:
            RefusedError: it exists with another spec, or an alias has that name.
            StopRunError: nothing can be written there (read-only, disk full, credentials).
        """
        ...

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole (vector and payload replaced), confirmed before it returns.

        A batch may be of any size; the store cuts it by its own limits.

        Returns:
            The rows that were not taken, in order; all others are stored and will be found.

        Raises:
            TransientError: nothing is known to be stored; the same call may succeed later.
            OutcomeUnknownError: it may be stored; writing again is safe, since ids are stable.
            StopRunError: no write can succeed (read-only, disk full, credentials).
        """
        ...

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, confirmed before it returns; absent ids are no error."""
        ...

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """Return the records that exist, in the order of ``ids``; absent ones are left out.

        Under cosine a vector may come back scaled to norm 1. Tuples in payloads come back as lists.
        """
        ...

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first; ``vector`` has shape (dimension,).

        Raises:
            RefusedError: the vector has another dimension, is not finite, or is zero under cosine;
                ``k`` is not positive; a value of ``where`` cannot be compared.
        """
        ...

    def count(self, collection: str) -> int:
        """Exact number of records."""
        ...

    def ids(self, collection: str) -> Iterator[UUID]:
        """Every record id once, in no order; the collection must not be written meanwhile."""
        ...

    def collections(self) -> Sequence[str]:
        """Names of the collections that exist, sorted."""
        ...

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection`` in one step; readers see the old or the new one.

        Raises:
            RefusedError: there is no such collection, or a collection has the alias' name.
        """
        ...

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None when there is no such alias."""
        ...

    def drop_collection(self, collection: str) -> None:
        """Delete a collection with all records; absent is no error.

        Raises:
            RefusedError: an alias points at it.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections; nothing that was confirmed depends on it.

        Doing it again changes nothing.
        """
        ...


def finish_collection(store: VectorStore, collection: str) -> None:
    """Make a collection fit to be searched: some stores build their graph at the end of a load."""
    _call_if_there(store, "finish", collection)


def tidy_collection(store: VectorStore, collection: str) -> None:
    """Have a store do what the writes of a run have put off: a search index, for instance."""
    _call_if_there(store, "tidy", collection)


def confirmed_together(store: object, collection: str) -> AbstractContextManager[None]:
    """Let a store confirm what is written within a block at its end, and not call by call.

    For stores to which confirming costs something: a sync of files, for instance. What was written
    is found at once. It is confirmed when the block has ended without an error; what was written in
    one that has not is confirmed with the next. Other stores confirm each call, as ever.
    """
    method = getattr(store, "confirmed_together", None)
    return nullcontext() if method is None else method(collection)


def _call_if_there(store: VectorStore, name: str, collection: str) -> None:
    method = getattr(store, name, None)
    if method is not None:
        method(collection)
