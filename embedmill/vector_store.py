"""The contract of a vector store and the checks that every write passes before the wire."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import orjson

from embedmill.embedder import Vectors
from embedmill.recipe import Metric

Payload = dict[str, Any]
# Equality on payload keys; a list of values means any of them.
Filter = Mapping[str, str | int | float | bool | Sequence[str | int | float | bool]]


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

    Collections and aliases are names of letters, digits, ``-``, ``_`` and ``.``.
    """

    limits: StoreLimits

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """Create; doing it again with the same spec changes nothing.

        Raises:
            RefusedError: it exists with another spec.
        """
        ...

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records whole (vector and payload replaced), confirmed before it returns.

        Returns:
            The rows that were not taken; all others are stored and will be found.

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
        """Return the records that exist, in the order of ``ids``; absent ones are left out."""
        ...

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """Return at most ``k`` nearest records, best first; ``vector`` has shape (dimension,)."""
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
            RefusedError: there is no such collection.
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
        """Let go of files and connections; nothing that was confirmed depends on it."""
        ...


def json_ready(payload: Payload) -> bytes:
    """Payload as JSON bytes.

    Raises:
        ValueError: it holds something that JSON cannot (NaN, bytes, dates, huge integers).
    """
    for key, value in payload.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{key!r} is {value}")
    try:
        return orjson.dumps(payload)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise ValueError(str(error)) from error


def check_batch(
    batch: VectorBatch, spec: CollectionSpec, limits: StoreLimits
) -> tuple[VectorBatch, list[int], list[Rejection]]:
    """Find what no store should be given, before the wire; no client checks it all.

    Args:
        batch: any number of records.
        spec: of the collection.
        limits: of the store.

    Returns:
        The good records, their rows in ``batch``, and a rejection for each other row. Of two
        records with one id the last is kept and the earlier ones are rejected.

    Raises:
        ValueError: the three columns differ in length; that is a bug, not data.
    """
    count = len(batch.ids)
    if len(batch.payloads) != count or batch.vectors.shape[0] != count:
        raise ValueError("ids, vectors and payloads differ in length")
    if batch.vectors.ndim != 2 or batch.vectors.shape[1] != spec.dimension:
        message = f"dimension {batch.vectors.shape[1:]} where the collection has {spec.dimension}"
        rejections = [Rejection(row, "dimension", message) for row in range(count)]
        return batch.take([]), [], rejections
    problems = _vector_problems(batch.vectors, spec)
    last_row_of = {record: row for row, record in enumerate(batch.ids)}
    rejections = []
    good = []
    for row in range(count):
        problem = (
            problems.get(row)
            or _payload_problem(batch.payloads[row], limits)
            or _duplicate_problem(last_row_of[batch.ids[row]], row)
        )
        if problem is None:
            good.append(row)
        else:
            rejections.append(Rejection(row, *problem))
    return (batch if len(good) == count else batch.take(good)), good, rejections


def _vector_problems(vectors: Vectors, spec: CollectionSpec) -> dict[int, tuple[str, str]]:
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    bad: dict[int, tuple[str, str]] = {}
    for row in np.flatnonzero(~np.isfinite(norms)):
        bad[int(row)] = ("not-finite", "the vector holds NaN or infinity")
    for row in np.flatnonzero(norms == 0):
        bad[int(row)] = ("zero-vector", "the vector is zero")
    if spec.normalised:
        for row in np.flatnonzero(np.isfinite(norms) & (norms > 0) & (np.abs(norms - 1) > 1e-3)):
            bad[int(row)] = ("not-normalised", f"the norm is {norms[row]:.4f}, not 1")
    return bad


def _payload_problem(payload: Payload, limits: StoreLimits) -> tuple[str, str] | None:
    try:
        size = len(json_ready(payload))
    except ValueError as error:
        return "payload-type", f"the payload is not JSON: {error}"
    if size > limits.payload_bytes:
        return (
            "payload-too-large",
            f"the payload has {size:,} bytes, the store takes {limits.payload_bytes:,}",
        )
    return None


def _duplicate_problem(last_row: int, row: int) -> tuple[str, str] | None:
    if last_row == row:
        return None
    return "duplicate-id", f"row {last_row} of the same batch has the same id"
