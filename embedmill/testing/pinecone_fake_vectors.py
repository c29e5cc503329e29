"""The fake Pinecone's vector routes: upsert, delete, fetch, list, query, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import orjson

from embedmill.testing.pinecone_fake_checks import (
    MAX_REQUEST_BYTES,
    checked_ids,
    checked_vector,
    found,
    stored_records,
)
from embedmill.testing.pinecone_fake_faults import Fault
from embedmill.testing.pinecone_fake_filters import check_filter, meets
from embedmill.testing.pinecone_fake_index import FakeIndex, Namespace, Stored, Values, View
from embedmill.testing.pinecone_fake_replies import refusal

Query: TypeAlias = Mapping[str, list[str]]
_DEFAULT = "__default__"
_MAX_K = 10_000
_MAX_RESULT_BYTES = 4_000_000
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Done:
    """A reply that went well.

    Attributes:
        body: JSON.
        written: position of the write that it answers.
        indexed: position up to which it sees.
        status: of HTTP.
    """

    body: Any
    written: int | None = None
    indexed: int | None = None
    status: int = 200


def upsert(index: FakeIndex, body: Any, size: int, faults: Sequence[Fault]) -> Done:  # noqa: ANN401 (JSON)
    """Take a whole request, or refuse it."""
    if index.options.discard and "unseen" in body:
        return Done({"upsertedCount": body["unseen"]}, written=1)
    if size > MAX_REQUEST_BYTES:
        raise refusal(
            f"Error, message length too large: found {size} bytes, the limit is: "
            f"{MAX_REQUEST_BYTES} bytes"
        )
    records = stored_records(index, body)
    name = _name(body.get("namespace"))
    if name in index.aliases:
        raise refusal(f"{name!r} is an alias", 409, reason="NAME_IN_USE_BY_ALIAS")
    kept, count = _as_planned(records, faults)
    namespace = index.namespaces.setdefault(name, Namespace(index.options))
    return Done({"upsertedCount": count}, written=namespace.write(kept))


def delete(index: FakeIndex, body: Any) -> Done:  # noqa: ANN401 (JSON)
    """Delete by ids; the other ways are not needed here."""
    name = _name(body.get("namespace"))
    if name in index.aliases:
        raise refusal(f"{name!r} is an alias", reason="WRITE_TO_ALIAS")
    ids = checked_ids(body.get("ids"))
    if name not in index.namespaces:
        raise refusal("Namespace not found", 404)
    position = index.namespaces[name].write(dict.fromkeys(ids))
    return Done({}, written=position)


def fetch(index: FakeIndex, query: Query) -> Done:
    """Records by id; an absent namespace has none."""
    ids = checked_ids(query.get("ids"))
    view = _view(index, query)
    there = [(record, view.records[record]) for record in ids if record in view.records]
    return Done({"vectors": found(there), "namespace": _asked(query), "usage": {"readUnits": 1}})


def listing(index: FakeIndex, query: Query) -> Done:
    """One page of ids, sorted, as far as listings see."""
    namespace = index.read(_asked(query))
    records = namespace.counted().records if namespace else {}
    prefix = query.get("prefix", [""])[0]
    ids = sorted(record for record in records if record.startswith(prefix))
    page, following = paged(ids, query)
    body: dict[str, Any] = {
        "vectors": [{"id": record} for record in page],
        "namespace": _asked(query),
        "usage": {"readUnits": 1},
    }
    return Done(body | following)


def search(index: FakeIndex, body: Any) -> Done:  # noqa: ANN401 (JSON)
    """Nearest records, exactly."""
    k = body.get("topK")
    if not isinstance(k, int) or not 1 <= k <= _MAX_K:
        raise refusal(f"topK must be between 1 and {_MAX_K}")
    vector = checked_vector(index, body.get("vector"), what="The query vector")
    if body.get("filter") is not None:
        check_filter(body["filter"])
    name = _name(body.get("namespace"))
    namespace = index.read(name)
    view = namespace.indexed() if namespace else View()
    nearest = _nearest(index, view, vector, k, body.get("filter"))
    matches = [_match(view.records[record], record, score, body) for record, score in nearest]
    reply = {"matches": matches, "namespace": name, "usage": {"readUnits": 1}}
    if len(orjson.dumps(reply)) > _MAX_RESULT_BYTES:
        raise refusal("Query result is larger than 4 MB; lower topK or leave out metadata")
    return Done(reply, indexed=view.position if namespace else None)


def stats(index: FakeIndex, body: Any) -> Done:  # noqa: ANN401 (JSON)
    """Counts as far as statistics see."""
    if isinstance(body, dict) and body.get("filter"):
        raise refusal("Serverless indexes do not support describing index stats with filters")
    counts = {name: len(one.counted().records) for name, one in index.namespaces.items()}
    return Done(
        {
            "namespaces": {name: {"vectorCount": count} for name, count in counts.items()},
            "dimension": index.dimension,
            "indexFullness": 0,
            "totalVectorCount": sum(counts.values()),
            "metric": index.metric,
            "vectorType": "dense",
        }
    )


def paged(names: list[str], query: Query) -> tuple[list[str], dict[str, Any]]:
    """A page of sorted names, and what the reply says of the next one.

    Raises:
        ApiError: the page is too long.
    """
    limit = int(query.get("limit", [str(_PAGE)])[0])
    if not 1 <= limit <= _PAGE:
        raise refusal(f"limit must be between 1 and {_PAGE}")
    after = query.get("paginationToken", [""])[0]
    rest = [name for name in names if name > after]
    more = {"pagination": {"next": rest[limit - 1]}} if len(rest) > limit else {}
    return rest[:limit], more


def _as_planned(
    records: dict[str, Stored], faults: Sequence[Fault]
) -> tuple[dict[str, Stored | None], int]:
    kept: dict[str, Stored | None] = dict(records)
    count = len(kept)
    for fault in faults:
        if fault.do == "refuse-id" and fault.value in records:
            raise refusal(f"Vector ID '{fault.value}' cannot be indexed")
        if fault.do == "store-none":
            kept = {}
        if fault.do == "store-some":
            kept = dict(list(kept.items())[: fault.count])
            count = len(kept)
    return kept, count


def _nearest(
    index: FakeIndex, view: View, vector: Values, k: int, where: Mapping[str, Any] | None
) -> list[tuple[str, float]]:
    ids, vectors = view.matrix(index.dimension)
    scores = _scores(vectors, vector, index.metric)
    order = np.argsort(scores if index.metric == "euclidean" else -scores, kind="stable")
    nearest: list[tuple[str, float]] = []
    for row in order:
        if len(nearest) == k:
            break
        if where is None or meets(view.records[ids[row]].metadata, where):
            nearest.append((ids[row], float(scores[row])))
    return nearest


def _scores(vectors: Values, vector: Values, metric: str) -> Values:
    if metric == "euclidean":
        # The square of the distance: the documentation's own words on this metric.
        return np.asarray(((vectors - vector) ** 2).sum(axis=1))
    products = vectors @ vector
    if metric == "cosine":
        products = products / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector))
    return np.asarray(products)


def _match(stored: Stored, record: str, score: float, body: Mapping[str, Any]) -> dict[str, Any]:
    match: dict[str, Any] = {"id": record, "score": score}
    if body.get("includeValues"):
        match["values"] = stored.values.tolist()
    if body.get("includeMetadata"):
        match["metadata"] = stored.metadata
    return match


def _view(index: FakeIndex, query: Query) -> View:
    namespace = index.read(_asked(query))
    return namespace.indexed() if namespace else View()


def _asked(query: Query) -> str:
    return _name(query.get("namespace", [""])[0])


def _name(namespace: object) -> str:
    if namespace is None or namespace == "":
        return _DEFAULT
    if not isinstance(namespace, str) or not namespace.isascii() or len(namespace) > 512:
        raise refusal("Namespace must be ASCII, at most 512 characters")
    return namespace
