"""The fake Pinecone's API: control plane at the root, each index under ``/data/<name>``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from embedmill.testing import pinecone_fake_imports as imports
from embedmill.testing import pinecone_fake_namespaces as control
from embedmill.testing import pinecone_fake_vectors as vectors
from embedmill.testing.fake_api import Call, Reply, Request, RouteTable
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.pinecone_fake_faults import Fault
from embedmill.testing.pinecone_fake_index import FakeIndex, Project
from embedmill.testing.pinecone_fake_replies import ApiError, control_refusal, refusal, unauthorized

_NAME = r"([^/]+)"
_CONTROL = RouteTable(
    ("POST", r"/indexes", "indexes.create"),
    ("GET", r"/indexes", "indexes.list"),
    ("GET", rf"/indexes/{_NAME}", "indexes.get"),
    ("DELETE", rf"/indexes/{_NAME}", "indexes.delete"),
)
_DATA = RouteTable(
    ("POST", r"/vectors/upsert", "vectors.upsert"),
    ("POST", r"/vectors/delete", "vectors.delete"),
    ("GET", r"/vectors/fetch", "vectors.fetch"),
    ("GET", r"/vectors/list", "vectors.list"),
    ("POST", r"/query", "vectors.query"),
    ("POST", r"/describe_index_stats", "stats"),
    ("POST", r"/namespaces", "namespaces.create"),
    ("GET", r"/namespaces", "namespaces.list"),
    ("GET", rf"/namespaces/{_NAME}", "namespaces.get"),
    ("DELETE", rf"/namespaces/{_NAME}", "namespaces.delete"),
    ("POST", r"/namespace-aliases", "aliases.create"),
    ("GET", r"/namespace-aliases", "aliases.list"),
    ("GET", rf"/namespace-aliases/{_NAME}", "aliases.get"),
    ("PATCH", rf"/namespace-aliases/{_NAME}", "aliases.repoint"),
    ("DELETE", rf"/namespace-aliases/{_NAME}", "aliases.delete"),
    ("POST", r"/bulk/imports", "imports.start"),
    ("GET", r"/bulk/imports", "imports.list"),
    ("GET", rf"/bulk/imports/{_NAME}", "imports.get"),
    ("DELETE", rf"/bulk/imports/{_NAME}", "imports.cancel"),
)
_API_VERSION = "2026-07"


@dataclass(frozen=True, slots=True)
class _Work:
    route: str
    index: FakeIndex | None
    name: str
    query: Mapping[str, list[str]]
    body: Any
    size: int


class PineconeApi:
    """Answers as Pinecone does; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = "x-pinecone-request-id"

    def __init__(self, project: Project, plan: FaultPlan[Fault]) -> None:
        """Answer for a project.

        Args:
            project: all indexes.
            plan: what goes wrong.
        """
        self.plan = plan
        self._project = project

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """The route; before the open part of its path the name of the index, where it has one."""
        found = re.fullmatch(r"/data/([^/]+)(/.*)", request.path)
        routes, path = (_DATA, found[2]) if found else (_CONTROL, request.path)
        known = routes.find(request.method, path)
        if known is None:
            raise refusal(f"Not found: {request.method} {path}", 404)
        if request.headers.get("x-pinecone-api-version") != _API_VERSION:
            raise refusal("The API version is too old", reason="API_VERSION_TOO_OLD")
        if found and found[1] not in self._project.indexes:
            raise control_refusal(404, "NOT_FOUND", "Index not found")
        return (known[0], (found[1], *known[1])) if found else known

    def refuse(self, fault: Fault, request: Request) -> None:
        """Refuse as planned."""
        _refuse(fault, request.headers.get("api-key", ""))

    def answer(self, call: Call[Fault]) -> Reply:
        """Do what is asked."""
        key = call.request.headers.get("api-key", "")
        if key == "" or self._project.options.api_key not in {"", key}:
            raise unauthorized()
        work = self._understood(call)
        with self._project.lock:
            done = _handler_of(self._project, work, _host_of(call.request), call.faults)()
        return self._reply(done)

    def _understood(self, call: Call[Fault]) -> _Work:
        content = call.request.body
        unseen = self._project.options.discard and call.route == "vectors.upsert"
        if unseen and b'"namespace":"_' not in content:
            content = orjson.dumps({"unseen": content.count(b'"values":')})
        try:
            body = orjson.loads(content) if content else None
        except orjson.JSONDecodeError as error:
            raise refusal("The body is not JSON") from error
        of_index = call.request.path.startswith("/data/")
        index = self._project.indexes.get(call.name) if of_index else None
        if of_index and index is None:
            raise control_refusal(404, "NOT_FOUND", "Index not found")
        rest = call.names[1:] if of_index else call.names
        return _Work(call.route, index, "".join(rest), call.request.query, body, len(content))

    def _reply(self, done: vectors.Done) -> Reply:
        headers = {}
        if self._project.options.lsn_headers:
            if done.written is not None:
                headers["x-pinecone-request-lsn"] = str(done.written)
            if done.indexed is not None:
                headers["x-pinecone-max-indexed-lsn"] = str(done.indexed)
        return Reply(done.status, orjson.dumps(done.body), headers=headers)


def _host_of(request: Request) -> str:
    return f"http://{request.headers.get('host', '')}"


def _handler_of(
    project: Project, work: _Work, url: str, faults: Sequence[Fault]
) -> Callable[[], vectors.Done]:
    name, body, query = work.name, work.body or {}, work.query
    if work.index is None:
        return {
            "indexes.create": lambda: control.create_index(project, body, url),
            "indexes.list": lambda: control.list_indexes(project, url),
            "indexes.get": lambda: control.get_index(project, name, url),
            "indexes.delete": lambda: control.delete_index(project, name),
        }[work.route]
    index = work.index
    return {
        "vectors.upsert": lambda: vectors.upsert(index, body, work.size, faults),
        "vectors.delete": lambda: vectors.delete(index, body),
        "vectors.fetch": lambda: vectors.fetch(index, query),
        "vectors.list": lambda: vectors.listing(index, query),
        "vectors.query": lambda: vectors.search(index, body),
        "stats": lambda: vectors.stats(index, body),
        "namespaces.create": lambda: control.create_namespace(index, body),
        "namespaces.list": lambda: control.list_namespaces(index, query),
        "namespaces.get": lambda: control.get_namespace(index, name),
        "namespaces.delete": lambda: control.delete_namespace(index, name),
        "aliases.create": lambda: control.create_alias(index, body),
        "aliases.list": lambda: control.list_aliases(index, query),
        "aliases.get": lambda: control.get_alias(index, name),
        "aliases.repoint": lambda: control.repoint_alias(index, name, body),
        "aliases.delete": lambda: control.delete_alias(index, name),
        "imports.start": lambda: imports.start(index, body, faults),
        "imports.list": lambda: imports.listing(index, query),
        "imports.get": lambda: imports.describe(index, name),
        "imports.cancel": lambda: imports.cancel(index, name),
    }[work.route]


def _refuse(fault: Fault, key: str) -> None:
    """Refuse, where that is what is planned.

    Raises:
        ApiError: as the real server words it.
    """
    if fault.do == "error":
        message = (fault.value or "Internal error").replace("{key}", key)
        raise refusal(message, fault.status)
    error = _errors(fault).get(fault.do)
    if error is not None:
        raise error


def _errors(fault: Fault) -> dict[str, ApiError]:
    wait = {"retry-after": fault.value} if fault.value else {}
    return {
        "rate-limit": refusal("Too many requests", 429, headers=wait),
        "month-limit": refusal(
            "You've reached your write unit limit for the current month (2000000). To continue "
            "writing data, upgrade your plan.",
            429,
        ),
        "quota": control_refusal(403, "QUOTA_EXCEEDED", "You've reached the quota of the project"),
        "no-money": control_refusal(402, "PAYMENT_REQUIRED", "Payment is required"),
        "bad-key": unauthorized(),
        "forbidden": refusal("Forbidden", 403),
        "too-large": refusal("Payload too large", 413),
    }
