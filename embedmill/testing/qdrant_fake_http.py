"""The fake Qdrant server's HTTP: keys, body limit, planned faults, replies."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from embedmill.testing.qdrant_fake_faults import Fault, FaultPlan, Route
from embedmill.testing.qdrant_fake_replies import ServerError, envelope, refusal
from embedmill.testing.qdrant_fake_routes import CHANGES, Request, answer, route_of
from embedmill.testing.qdrant_fake_state import FakeState

# ``service.max_request_size_mb`` of the real server, as delivered.
MAX_BODY = 32 * 2**20
_PAGE = (
    b"<html><head><title>502 Bad Gateway</title><style>h1 {color: red}</style></head>"
    b"<body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>"
)


@dataclass(slots=True)
class Site:
    """What the handlers of all connections share.

    Attributes:
        state: collections and aliases.
        plan: what goes wrong.
        api_key: that is asked for; empty: none.
        read_key: that may only read; empty: none.
        discard: answer upserts without looking at them, for measuring clients.
        requests: method and path of every request so far, answered or not.
    """

    state: FakeState
    plan: FaultPlan
    api_key: str = ""
    read_key: str = ""
    discard: bool = False
    requests: list[tuple[str, str]] = field(default_factory=list)


class SiteServer(ThreadingHTTPServer):
    """Serves a site on loopback; closing it ends all connections."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self, port: int, site: Site) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.site = site
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

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
    disable_nagle_algorithm = True
    # One packet per reply: headers by themselves would wait for the client's delayed ACK.
    wbufsize = -1
    server: SiteServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401, as in the base class
        """Say nothing: requests are in the site's log."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815, names of the base class

    def _answer(self) -> None:
        self.server.site.requests.append((self.command, self.path))
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        try:
            route, name = route_of(self.command, url.path)
            faults = self.server.site.plan.next_of(route)
            if self._instead(faults):
                return
            query = dict(parse_qsl(url.query))
            self._check(route, content)
            result = self._result(route, name, query, content, faults)
        except ServerError as error:
            self._reply(error.status, orjson.dumps(refusal(error)), headers=error.headers)
            return
        # The root is the one address without an envelope.
        reply = result if route == "root" else envelope(result)
        self._spoilt_reply(orjson.dumps(reply, option=orjson.OPT_SERIALIZE_NUMPY), faults)

    def _result(
        self, route: Route, name: str, query: dict[str, str], content: bytes, faults: list[Fault]
    ) -> object:
        site = self.server.site
        if route == "root":
            return {"title": "qdrant - vector search engine", "version": "1.20.0"}
        if site.discard and route == "points.upsert":
            return {"operation_id": 1, "status": "completed"}
        try:
            body = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError as error:
            raise ServerError(400, f"Format error in JSON body: {error}") from error
        return answer(site.state, Request(route, name, query, body, faults))

    def _check(self, route: Route, content: bytes) -> None:
        site = self.server.site
        if len(content) > MAX_BODY:
            words = f"JSON payload ({len(content)} bytes) is larger than allowed (limit: {MAX_BODY}"
            raise ServerError(400, f"Payload error: {words} bytes).")
        if not site.api_key or route == "root":
            return
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = self.headers.get("api-key") or bearer
        if not key:
            raise ServerError(401, "Must provide an API key or an Authorization bearer token")
        if key == site.read_key and key:
            if route in CHANGES:
                raise ServerError(403, "Forbidden: Write access is required")
        elif key != site.api_key:
            raise ServerError(401, "Invalid API key or JWT")

    def _instead(self, faults: Sequence[Fault]) -> bool:
        """Whether a fault has already been all the answer there is."""
        for fault in faults:
            match fault.do:
                case "slow":
                    time.sleep(fault.seconds)
                case "drop":
                    self.close_connection = True
                    return True
                case "html-502" | "html-200":
                    self._reply(int(fault.do[-3:]), _PAGE, kind="text/html")
                    return True
                case _:
                    _refuse(fault)
        return False

    def _spoilt_reply(self, content: bytes, faults: Sequence[Fault]) -> None:
        deeds = {fault.do: fault for fault in faults}
        if "late-reply" in deeds:
            time.sleep(deeds["late-reply"].seconds)
        if "drop-reply" in deeds:
            self.close_connection = True
        elif "error-reply" in deeds:
            error = ServerError(int(deeds["error-reply"].value or 500), "Service internal error")
            self._reply(error.status, orjson.dumps(refusal(error)))
        elif "truncated" in deeds:
            self._reply(200, content[: len(content) // 2], stated=len(content))
            self.close_connection = True
        else:
            self._reply(200, content)

    def _reply(
        self,
        status: int,
        content: bytes,
        *,
        kind: str = "application/json",
        stated: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) if stated is None else stated))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


def _refuse(fault: Fault) -> None:
    """Refuse, where that is what is planned.

    Raises:
        ServerError: as the real server, or one that stands before it, puts it.
    """
    if fault.do == "rate-limit":
        headers = {"Retry-After": fault.value} if fault.value else {}
        words = "Rate limiting exceeded: Write rate limit exceeded, retry later"
        raise ServerError(429, words, headers)
    refusals = {
        "error": (500, "Service internal error: task panicked"),
        "bad-key": (401, "Invalid API key or JWT"),
        "forbidden": (403, "Forbidden: Write access to the collection is required"),
        "read-only": (403, "Storage locked: the storage is read-only"),
        "disk-full": (
            500,
            "Service internal error: No space left on device: WAL buffer size exceeds available "
            "disk space",
        ),
        "not-found": (404, "Not found: Collection `gone` doesn't exist!"),
    }
    if fault.do in refusals:
        status, words = refusals[fault.do]
        raise ServerError(int(fault.value or status), words)
