"""The fake Pinecone's HTTP: control plane at the root, each index under ``/data/<name>``."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from embedmill.testing import pinecone_fake_namespaces as control
from embedmill.testing import pinecone_fake_vectors as vectors
from embedmill.testing.pinecone_fake_faults import Fault, FaultPlan, Route
from embedmill.testing.pinecone_fake_index import FakeIndex, Project
from embedmill.testing.pinecone_fake_replies import ApiError, control_refusal, refusal, unauthorized

_NAME = r"([^/]+)"
_CONTROL: tuple[tuple[str, str, Route], ...] = (
    ("POST", r"/indexes", "indexes.create"),
    ("GET", r"/indexes", "indexes.list"),
    ("GET", rf"/indexes/{_NAME}", "indexes.get"),
    ("DELETE", rf"/indexes/{_NAME}", "indexes.delete"),
)
_DATA: tuple[tuple[str, str, Route], ...] = (
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
)
_API_VERSION = "2026-07"
_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"


class DroppedError(Exception):
    """The connection ends without a reply."""


@dataclass(slots=True)
class Site:
    """What the handlers of all connections share.

    Attributes:
        project: all indexes.
        plan: what goes wrong.
        requests: method and path of every request so far, answered or not.
    """

    project: Project
    plan: FaultPlan
    requests: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Request:
    route: Route
    index: FakeIndex | None
    name: str
    query: dict[str, list[str]]
    body: Any
    size: int
    key: str


class SiteServer(ThreadingHTTPServer):
    """Serves a site on loopback; closing it ends all connections."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self, port: int, site: Site) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.site = site
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    @property
    def url(self) -> str:
        """Address of the control plane."""
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, as in the base class
        """Remember the connection."""
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401, as in the base class
        """Forget the connection."""
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, as in the base class
        """A client that hangs up is no news."""

    def end_connections(self) -> None:
        """Hang up on all clients, so that their threads end."""
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Header and body in one packet: else each reply waits for the delayed acknowledgement, 40 ms.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: SiteServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401, as in the base class
        """Say nothing: requests are in the site's log."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_POST(self) -> None:
        """Answer."""
        self._answer()

    def do_PATCH(self) -> None:
        """Answer."""
        self._answer()

    def do_DELETE(self) -> None:
        """Answer."""
        self._answer()

    def _answer(self) -> None:
        self.server.site.requests.append((self.command, self.path))
        try:
            self._serve()
        except ApiError as error:
            self._reply(error.status, error.content, error.content_type, error.headers)
        except DroppedError:
            self.close_connection = True

    def _serve(self) -> None:
        # Read first: a client that still sends would take a reply for a broken connection.
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        site = self.server.site
        request = self._parsed(content)
        faults = site.plan.next_of(request.route)
        for fault in faults:
            _instead(fault, request.key)
        if request.key == "" or site.project.options.api_key not in {"", request.key}:
            raise unauthorized()
        try:
            with site.project.lock:
                reply = _handler_of(site.project, request, self.server.url, faults)()
        except ApiError as error:
            _check_not_dropped(faults)
            raise error from None
        self._send(reply, faults)

    def _parsed(self, content: bytes) -> _Request:
        url = urlsplit(self.path)
        found = re.fullmatch(r"/data/([^/]+)(/.*)", url.path)
        routes, path = (_DATA, found[2]) if found else (_CONTROL, url.path)
        route, name = _route_of(routes, self.command, path)
        if self.headers.get("x-pinecone-api-version") != _API_VERSION:
            raise refusal("The API version is too old", reason="API_VERSION_TOO_OLD")
        index = self.server.site.project.indexes.get(found[1]) if found else None
        if found and index is None:
            raise control_refusal(404, "NOT_FOUND", "Index not found")
        try:
            body = orjson.loads(content) if content else None
        except orjson.JSONDecodeError as error:
            raise refusal("The body is not JSON") from error
        query = parse_qs(url.query, keep_blank_values=True)
        key = self.headers.get("api-key", "")
        return _Request(route, index, unquote(name), query, body, len(content), key)

    def _send(self, reply: vectors.Reply, faults: list[Fault]) -> None:
        headers = {}
        if self.server.site.project.options.lsn_headers:
            if reply.written is not None:
                headers["x-pinecone-request-lsn"] = str(reply.written)
            if reply.indexed is not None:
                headers["x-pinecone-max-indexed-lsn"] = str(reply.indexed)
        content = orjson.dumps(reply.body)
        _check_not_dropped(faults)
        cut = 0
        for fault in faults:
            if fault.do == "slow-reply":
                time.sleep(fault.seconds)
            cut = 1 if fault.do == "cut-reply" else cut
        self._reply(reply.status, content, "application/json", headers, cut=cut)

    def _reply(
        self,
        status: int,
        content: bytes,
        content_type: str,
        headers: dict[str, str],
        *,
        cut: int = 0,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-pinecone-request-id", f"req-{len(self.server.site.requests):06d}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) - cut])
        self.wfile.flush()
        self.close_connection = self.close_connection or cut > 0


def _check_not_dropped(faults: list[Fault]) -> None:
    """Hang up when the work is done, well or not, where that is planned."""
    if any(fault.do == "drop-reply" for fault in faults):
        raise DroppedError


def _route_of(
    routes: tuple[tuple[str, str, Route], ...], method: str, path: str
) -> tuple[Route, str]:
    for known, form, route in routes:
        found = re.fullmatch(form, path)
        if known == method and found:
            return route, found[1] if found.groups() else ""
    raise refusal(f"Not found: {method} {path}", 404)


def _handler_of(
    project: Project, request: _Request, url: str, faults: list[Fault]
) -> Callable[[], vectors.Reply]:
    name, body, query = request.name, request.body or {}, request.query
    if request.index is None:
        return {
            "indexes.create": lambda: control.create_index(project, body, url),
            "indexes.list": lambda: control.list_indexes(project, url),
            "indexes.get": lambda: control.get_index(project, name, url),
            "indexes.delete": lambda: control.delete_index(project, name),
        }[request.route]
    index = request.index
    return {
        "vectors.upsert": lambda: vectors.upsert(index, body, request.size, faults),
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
    }[request.route]


def _instead(fault: Fault, key: str) -> None:
    """Do what is planned to happen instead of the work.

    Raises:
        ApiError: an error is to be the reply.
        DroppedError: there is to be none.
    """
    if fault.do == "drop":
        raise DroppedError
    if fault.do in {"html-502", "html-200"}:
        raise ApiError(int(fault.do[-3:]), _PAGE, content_type="text/html")
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
