"""The fake Qdrant server's routes: which request is which, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from embedmill.testing.fake_api import RouteTable
from embedmill.testing.fault_plan import planned
from embedmill.testing.qdrant_fake_faults import Fault, Route
from embedmill.testing.qdrant_fake_points import Point, point_id
from embedmill.testing.qdrant_fake_replies import ServerError
from embedmill.testing.qdrant_fake_state import (
    FakeState,
    check_exact,
    check_indexed,
    check_limit,
)

_NAME = r"/collections/([^/]+)"
ROUTES = RouteTable(
    ("GET", r"/", "root"),
    ("GET", r"/collections", "collections.list"),
    ("POST", r"/collections/aliases", "aliases.update"),
    ("GET", r"/aliases", "aliases.list"),
    ("GET", _NAME, "collections.get"),
    ("GET", f"{_NAME}/exists", "collections.exists"),
    ("GET", f"{_NAME}/aliases", "aliases.of"),
    ("PUT", _NAME, "collections.create"),
    ("PATCH", _NAME, "collections.update"),
    ("DELETE", _NAME, "collections.delete"),
    ("PUT", f"{_NAME}/index", "index.create"),
    ("PUT", f"{_NAME}/points", "points.upsert"),
    ("POST", f"{_NAME}/points", "points.retrieve"),
    ("POST", f"{_NAME}/points/delete", "points.delete"),
    ("POST", f"{_NAME}/points/scroll", "points.scroll"),
    ("POST", f"{_NAME}/points/count", "points.count"),
    ("POST", f"{_NAME}/points/query", "points.query"),
)
# What a key that may only read is refused; everything else changes nothing.
CHANGES: frozenset[Route] = frozenset(
    {
        "collections.create",
        "collections.update",
        "collections.delete",
        "aliases.update",
        "index.create",
        "points.upsert",
        "points.delete",
    }
)


@dataclass(frozen=True, slots=True)
class Work:
    """One request, understood; its body is JSON.

    Attributes:
        route: of it.
        name: of the collection; empty where there is none.
        query: parameters.
        body: decoded.
        faults: that change what is done or said.
    """

    route: str
    name: str
    query: dict[str, str]
    body: Any
    faults: Sequence[Fault]

    def fault(self, *deeds: str) -> Fault | None:
        """The first of its faults that is one of these."""
        return planned(self.faults, *deeds)


def answer(state: FakeState, work: Work) -> object:
    """Do what is asked; the ``result`` of the reply."""
    name, body = work.name, work.body or {}
    routes: dict[str, Callable[[], object]] = {
        "collections.list": lambda: {"collections": [{"name": n} for n in state.collections]},
        "collections.get": lambda: state.described(name),
        "collections.exists": lambda: {"exists": name in {*state.collections, *state.aliases}},
        "collections.create": lambda: state.create(name, body),
        "collections.update": lambda: state.update(name, body),
        "collections.delete": lambda: state.delete(name),
        "aliases.update": lambda: state.change_aliases(body.get("actions") or []),
        "aliases.list": lambda: _aliases(state, None),
        "aliases.of": lambda: _aliases(state, name),
        "index.create": lambda: _updated(work, lambda: state.index(name, body)),
        "points.upsert": lambda: _updated(work, lambda: _upsert(state, work)),
        "points.delete": lambda: _updated(work, lambda: _delete(state, work)),
        "points.retrieve": lambda: _retrieve(state, name, body),
        "points.scroll": lambda: _scroll(state, name, body),
        "points.count": lambda: _count(state, work),
        "points.query": lambda: _query(state, name, body),
    }
    with state.lock:
        return routes[work.route]()


def _aliases(state: FakeState, name: str | None) -> dict[str, Any]:
    found = [
        {"alias_name": alias, "collection_name": target}
        for alias, target in state.aliases.items()
        if name in (None, target)
    ]
    return {"aliases": found}


def _updated(work: Work, deed: Callable[[], None]) -> dict[str, Any]:
    deed()
    status = "completed" if work.query.get("wait") == "true" else "acknowledged"
    if work.fault("acknowledged"):
        status = "acknowledged"
    if work.fault("wait-timeout"):
        status = "wait_timeout"
    return {"operation_id": 1, "status": status}


def _upsert(state: FakeState, work: Work) -> None:
    collection = state.collection(work.name)
    points = collection.points.parsed(work.body)
    check_limit(collection, "upsert_max_batchsize", len(points), "upsert limit")
    total = len({*collection.points.by_id, *(point.id for point in points)})
    most = collection.strict.get("max_points_count") if collection.strict.get("enabled") else None
    if most is not None and total > most:
        raise ServerError(400, f"Bad request: Max points count limit of {most} reached!")
    _refuse_poison(points, work)
    collection.points.put(_kept(points, work))
    _break_off(work)


def _refuse_poison(points: Sequence[Point], work: Work) -> None:
    for fault in work.faults:
        if fault.do == "poison" and any(fault.value in str(p.payload) for p in points):
            raise ServerError(400, f"Wrong input: payload with `{fault.value}` cannot be indexed")
        if fault.do == "too-many" and len(points) > fault.count:
            raise ServerError(413, "Payload Too Large")


def _kept(things: Sequence[Any], work: Work) -> Sequence[Any]:
    lost = work.fault("silent-drop")
    if lost is not None:
        return things[: max(0, len(things) - lost.count)]
    return things[: len(things) // 2] if work.fault("partial") else things


def _break_off(work: Work) -> None:
    if work.fault("partial"):
        raise ServerError(500, "Service internal error: 1 of 2 shards failed")


def _delete(state: FakeState, work: Work) -> None:
    ids = work.body.get("points")
    if not isinstance(ids, list):
        raise ServerError(400, "Format error in JSON body: missing field `points`")
    state.collection(work.name).points.remove(_kept(ids, work))
    _break_off(work)


def _retrieve(state: FakeState, name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    collection = state.collection(name)
    check_limit(collection, "max_query_limit", len(body["ids"]), "limit")
    found = collection.points.by_id
    return [
        _record(found[one], body, payload_by_default=True)
        for one in dict.fromkeys(map(point_id, body["ids"]))
        if one in found
    ]


def _scroll(state: FakeState, name: str, body: dict[str, Any]) -> dict[str, Any]:
    collection = state.collection(name)
    limit = body.get("limit") or 10
    check_limit(collection, "max_query_limit", limit, "limit")
    points, following = collection.points.page(body.get("offset"), limit)
    shown = [_record(point, body, payload_by_default=True) for point in points]
    return {"points": shown, "next_page_offset": following}


def _count(state: FakeState, work: Work) -> dict[str, int]:
    collection = state.collection(work.name)
    check_exact(collection, exact=(work.body or {}).get("exact", True))
    lag = work.fault("lag")
    return {"count": max(0, len(collection.points.by_id) - (lag.count if lag else 0))}


def _query(state: FakeState, name: str, body: dict[str, Any]) -> dict[str, Any]:
    collection = state.collection(name)
    where, limit, params = body.get("filter"), body.get("limit") or 10, body.get("params") or {}
    check_limit(collection, "max_query_limit", limit, "limit")
    check_limit(collection, "search_max_hnsw_ef", params.get("hnsw_ef") or 0, "hnsw_ef")
    check_exact(collection, exact=bool(params.get("exact")))
    check_indexed(collection, where)
    query = body.get("query")
    query = query.get("nearest") if isinstance(query, dict) else query
    hits = collection.points.nearest(query or [], limit, where)
    return {
        "points": [
            {**_record(point, body, payload_by_default=False), "version": 0, "score": score}
            for point, score in hits
        ]
    }


def _record(point: Point, body: dict[str, Any], *, payload_by_default: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"id": point.id}
    if body.get("with_payload", payload_by_default):
        record["payload"] = point.payload
    if body.get("with_vector"):
        record["vector"] = point.vector
    return record
