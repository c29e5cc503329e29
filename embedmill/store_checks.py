"""The checks that every call of a store passes before the wire."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from uuid import UUID

import numpy as np

from embedmill.embedder import Vectors, norms_of
from embedmill.errors import RefusedError
from embedmill.payload import Payload, json_ready, suspects
from embedmill.vector_store import CollectionSpec, Rejection, StoreLimits, VectorBatch

# Qdrant takes a vector below sqrt(2**-23) = 3.45e-4 for zero and leaves it as it is under cosine;
# above 1.8e19 the sum of squares is infinite in float32 and it stores zeros (measured, 0.9.0).
MIN_COSINE_NORM = 3.5e-4
MAX_NORM = 1e18
# Payloads checked in one go: 256 of 700 bytes stay far below any limit for a single one.
_CHECKED_TOGETHER = 256
LOST_COLLECTION = (
    "see whether `store` names where the index was built; embedmill audit --repair -c SETTINGS "
    "fills a collection that is lost from the workspace, nothing is embedded for it"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


def check_batch(
    batch: VectorBatch, spec: CollectionSpec, limits: StoreLimits
) -> tuple[VectorBatch, list[int], list[Rejection]]:
    """Find what no store should be given, before the wire; no client checks it all.

    Costs about 1 microsecond per record of seven payload values, as long as all are good.

    Args:
        batch: any number of records.
        spec: of the collection.
        limits: of the store.

    Returns:
        The good records, their rows in ``batch``, and a rejection for each other row, in order. Of
        records with one id the last is kept and the earlier ones are rejected.

    Raises:
        ValueError: the three columns differ in length, or the vectors are not float32; that is a
            bug, not data.
    """
    count = len(batch.ids)
    if len(batch.payloads) != count or batch.vectors.shape[0] != count:
        raise ValueError("ids, vectors and payloads differ in length")
    if batch.vectors.dtype != np.float32:
        raise ValueError(f"vectors are {batch.vectors.dtype}, not float32")
    if batch.vectors.ndim != 2 or batch.vectors.shape[1] != spec.dimension:
        message = f"dimension {batch.vectors.shape[1:]} where the collection has {spec.dimension}"
        return batch.take([]), [], [Rejection(row, "dimension", message) for row in range(count)]
    # Later ones win: what is wrong with a vector says more than that its id came twice.
    problems = _id_problems(batch.ids)
    problems.update(_payload_problems(batch.payloads, limits))
    problems.update(_vector_problems(batch.vectors, spec))
    if not problems:
        return batch, list(range(count)), []
    good = [row for row in range(count) if row not in problems]
    return batch.take(good), good, [Rejection(row, *problems[row]) for row in sorted(problems)]


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a collection or an alias.

    Raises:
        RefusedError: see :class:`VectorStore` for the rule.
    """
    if not _NAME.fullmatch(name):
        raise RefusedError(
            f"{name!r} cannot name a collection or an alias: letters, digits, '-', '_' and '.', "
            "the first a letter or digit, at most 200 characters"
        )


def check_same_spec(collection: str, existing: CollectionSpec, wanted: CollectionSpec) -> None:
    """Refuse to use a collection for another spec than it was made for.

    Raises:
        RefusedError: names both specs.
    """
    if existing != wanted:
        raise RefusedError(
            f"collection {collection!r} was made for {_in_words(existing)}, "
            f"and is now asked for {_in_words(wanted)}",
            code="spec-mismatch",
            hint="build a new index version (embedmill reembed SETTINGS), or drop this "
            "collection first",
        )


def check_query(collection: str, vector: Vectors, k: int, spec: CollectionSpec) -> None:
    """Refuse a search that could only return nonsense.

    Raises:
        RefusedError: see :meth:`VectorStore.search`.
    """
    if k < 1:
        raise RefusedError(f"k must be at least 1, not {k}", code="query")
    if vector.shape != (spec.dimension,):
        raise RefusedError(
            f"the query vector has shape {vector.shape}, collection {collection!r} has dimension "
            f"{spec.dimension}",
            code="dimension",
            hint="embed the query with the model of the index version that is searched",
        )
    problems = _vector_problems(
        vector[np.newaxis], CollectionSpec(spec.dimension, spec.metric, normalised=False)
    )
    # A zero query has a meaning for dot and euclid: every record, by its own position.
    if problems and (spec.metric == "cosine" or problems[0][0] != "zero-vector"):
        raise RefusedError(f"the query cannot be searched: {problems[0][1]}", code="query")


def _in_words(spec: CollectionSpec) -> str:
    kind = "normalised" if spec.normalised else "not normalised"
    return f"dimension {spec.dimension}, metric {spec.metric}, {kind}"


def _vector_problems(vectors: Vectors, spec: CollectionSpec) -> dict[int, tuple[str, str]]:
    norms = norms_of(vectors)
    least = MIN_COSINE_NORM if spec.metric == "cosine" else 0.0
    fine = (norms > least) & (norms < MAX_NORM)
    if spec.normalised:
        # 1e-3: rounding to bfloat16 stays below, a forgotten normalisation does not.
        fine &= np.abs(norms - 1) <= 1e-3
    return {int(row): _norm_problem(float(norms[row]), spec) for row in np.flatnonzero(~fine)}


def _norm_problem(norm: float, spec: CollectionSpec) -> tuple[str, str]:
    if not math.isfinite(norm):
        return "not-finite", "the vector holds NaN or infinity"
    if norm == 0:
        return "zero-vector", "the vector is zero"
    if spec.normalised:
        return "not-normalised", f"the norm is {norm:.4f}, not 1"
    return "norm-range", f"the norm {norm:.3g} is outside what stores compute with in float32"


def _id_problems(ids: Sequence[UUID]) -> dict[int, tuple[str, str]]:
    problems = {}
    if set(map(type, ids)) - {UUID}:
        for row, record in enumerate(ids):
            if type(record) is not UUID:
                problems[row] = ("id-type", f"the id is a {type(record).__name__}, not a UUID")
    if len(set(ids)) == len(ids):
        return problems
    last_row_of = {record: row for row, record in enumerate(ids)}
    for row, record in enumerate(ids):
        last = last_row_of[record]
        if last != row:
            problems[row] = ("duplicate-id", f"row {last} of the same batch has the same id")
    return problems


def _payload_problems(
    payloads: Sequence[Payload], limits: StoreLimits
) -> dict[int, tuple[str, str]]:
    problems = {}
    for start in range(0, len(payloads), _CHECKED_TOGETHER):
        some = list(payloads[start : start + _CHECKED_TOGETHER])
        for row in suspects(limits.payload_bytes, some):
            problem = _payload_problem(some[row], limits)
            if problem is not None:
                problems[start + row] = problem
    return problems


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
