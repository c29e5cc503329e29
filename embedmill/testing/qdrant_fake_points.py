"""The fake Qdrant server's points: what it takes, and how they are found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np

from embedmill.embedder import Vectors
from embedmill.testing.qdrant_fake_filters import matches
from embedmill.testing.qdrant_fake_replies import ServerError

PointId = int | str
_NO_VARIANT = "Format error in JSON body: data did not match any variant of untagged enum"


@dataclass(frozen=True, slots=True)
class Point:
    """One point; the vector of norm 1 under cosine."""

    id: PointId
    vector: Vectors
    payload: dict[str, Any]


@dataclass(slots=True)
class Points:
    """The points of one collection, found by comparing with each of them.

    Attributes:
        dimension: of every vector.
        distance: ``Cosine``, ``Dot`` or ``Euclid``.
        by_id: all of them.
    """

    dimension: int
    distance: str
    by_id: dict[PointId, Point] = field(default_factory=dict)

    def parsed(self, body: Any) -> list[Point]:  # noqa: ANN401, off the wire
        """Points of an upsert's body, all of them good.

        Raises:
            ServerError: one of them is not; none is stored then.
        """
        ids, vectors, payloads = _columns(body)
        if not ids:
            raise ServerError(400, "Bad request: Empty update request")
        keys = [point_id(one) for one in ids]
        matrix = self._matrix(vectors)
        if not all(payload is None or isinstance(payload, dict) for payload in payloads):
            raise ServerError(400, f"{_NO_VARIANT} PointInsertOperations")
        columns = zip(keys, matrix, payloads, strict=True)
        return [Point(key, vector, payload or {}) for key, vector, payload in columns]

    def put(self, points: Iterable[Point]) -> None:
        """Store; of points with one id the last one counts."""
        self.by_id.update((point.id, point) for point in points)

    def remove(self, ids: Iterable[Any]) -> None:
        """Delete those that exist."""
        for one in ids:
            self.by_id.pop(point_id(one), None)

    def page(self, offset: object, limit: int) -> tuple[list[Point], PointId | None]:
        """Points in order of their ids, numbers first, and where the next page starts."""
        order = sorted(self.by_id, key=_order)
        first = 0
        if offset is not None:
            start = _order(point_id(offset))
            first = sum(_order(one) < start for one in order)
        chosen = order[first : first + limit]
        following = order[first + limit : first + limit + 1]
        return [self.by_id[one] for one in chosen], following[0] if following else None

    def nearest(
        self, query: Sequence[float], limit: int, where: object
    ) -> list[tuple[Point, float]]:
        """The nearest points that meet a filter, best first, and their scores."""
        vector = self._matrix([query])[0]
        found = [p for p in self.by_id.values() if where is None or matches(p.payload, where)]
        if not found:
            return []
        matrix = np.array([point.vector for point in found])
        if self.distance == "Euclid":
            scores = np.linalg.norm(matrix - vector, axis=1)
            order = np.argsort(scores, kind="stable")
        else:
            scores = matrix @ vector
            order = np.argsort(-scores, kind="stable")
        return [(found[row], float(scores[row])) for row in order[:limit]]

    def _matrix(self, vectors: Sequence[Any]) -> Vectors:
        for vector in vectors:
            if not isinstance(vector, list):
                raise ServerError(400, f"{_NO_VARIANT} VectorStruct")
            if len(vector) != self.dimension:
                words = f"expected dim: {self.dimension}, got {len(vector)}"
                raise ServerError(400, f"Wrong input: Vector dimension error: {words}")
        try:
            matrix: Vectors = np.array(vectors, dtype=np.float32)
        except (TypeError, ValueError):
            raise ServerError(400, f"{_NO_VARIANT} VectorStruct") from None
        # A null (which is what NaN becomes) is turned into NaN by numpy.
        if np.isnan(matrix).any():
            raise ServerError(400, f"{_NO_VARIANT} VectorStruct")
        if self.distance == "Cosine":
            norms = np.linalg.norm(matrix, axis=1, keepdims=True)
            return np.asarray(matrix / np.where(norms == 0, 1, norms), dtype=np.float32)
        return matrix


def point_id(value: object) -> PointId:
    """An id as the server knows it: all spellings of a UUID are one.

    Raises:
        ServerError: it is neither a UUID nor an unsigned number of 64 bits.
    """
    if type(value) is int and 0 <= value < 2**64:
        return value
    if isinstance(value, str):
        try:
            return str(UUID(value))
        except ValueError:
            pass
    raise ServerError(
        400,
        f"Format error in JSON body: value {value} is not a valid point ID, "
        "valid values are either an unsigned integer or a UUID",
    )


def _order(key: PointId) -> tuple[int, int]:
    return (0, key) if isinstance(key, int) else (1, UUID(key).int)


def _columns(body: Any) -> tuple[list[Any], list[Any], list[Any]]:  # noqa: ANN401, off the wire
    if isinstance(body, dict) and isinstance(body.get("batch"), dict):
        batch = body["batch"]
        ids, vectors = batch.get("ids"), batch.get("vectors")
        payloads = batch.get("payloads") or [None] * len(ids or [])
        if isinstance(ids, list) and isinstance(vectors, list):
            if len(ids) != len(vectors) or len(ids) != len(payloads):
                raise ServerError(422, "Validation error in JSON body: number of ids and vectors")
            return ids, vectors, payloads
    if isinstance(body, dict) and isinstance(body.get("points"), list):
        points = body["points"]
        if all(isinstance(point, dict) for point in points):
            return (
                [point.get("id") for point in points],
                [point.get("vector") for point in points],
                [point.get("payload") for point in points],
            )
    raise ServerError(400, f"{_NO_VARIANT} PointInsertOperations")
