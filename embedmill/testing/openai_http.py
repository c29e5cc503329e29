"""The fake OpenAI server's HTTP: routes, planned faults, error shapes, streamed bodies."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from embedmill.testing.openai_account import Account, ApiError, Bill, StoredFile
from embedmill.testing.openai_downloads import content_parts
from embedmill.testing.openai_embeddings import checked_request, reply_body
from embedmill.testing.openai_faults import Fault, Route
from embedmill.testing.openai_jobs import Jobs
from embedmill.testing.openai_multipart import MultipartReader
from embedmill.testing.openai_planned import DroppedError, after_reply, before_reply, spoiled

_ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("POST", r"/v1/files", "files.create"),
    ("GET", r"/v1/files", "files.list"),
    ("GET", r"/v1/files/([\w-]+)", "files.get"),
    ("GET", r"/v1/files/([\w-]+)/content", "files.content"),
    ("DELETE", r"/v1/files/([\w-]+)", "files.delete"),
    ("POST", r"/v1/batches", "batches.create"),
    ("GET", r"/v1/batches", "batches.list"),
    ("GET", r"/v1/batches/([\w-]+)", "batches.get"),
    ("POST", r"/v1/batches/([\w-]+)/cancel", "batches.cancel"),
    ("POST", r"/v1/embeddings", "embeddings"),
)
# Not of the real server: what was charged for.
_BILL_PATH = "/fake/bill"


@dataclass(slots=True)
class Site:
    """What the handlers of all connections share.

    Attributes:
        account: files and bill.
        jobs: all of them.
        requests: method and path of every request so far, answered or not.
    """

    account: Account
    jobs: Jobs
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
    server: SiteServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401, as in the base class
        """Say nothing: requests are in the site's log."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_POST(self) -> None:
        """Answer."""
        self._answer()

    def do_DELETE(self) -> None:
        """Answer."""
        self._answer()

    def _answer(self) -> None:
        self._replied = False
        self.server.site.requests.append((self.command, self.path))
        try:
            self._serve()
        except ApiError as error:
            self._reply(error.status, error.body, error.headers)
        except DroppedError:
            self.close_connection = True

    def _serve(self) -> None:
        site, url = self.server.site, urlsplit(self.path)
        if url.path == _BILL_PATH:
            self._reply(200, site.account.bill.summary())
            return
        route, name = _route_of(self.command, url.path)
        faults = site.account.plan.next_of(route)
        body = self._body(route)
        for fault in faults:
            before_reply(fault, self._raw_reply)
        if self._replied:
            return
        self._refuse_key()
        query = dict(parse_qsl(url.query))
        if route == "files.content":
            self._send_file(site.account.file(name), faults)
            return
        record = _records(site, name, query, body)[route]()
        for fault in faults:
            after_reply(fault)
        self._reply(200, spoiled(record, faults))

    def _body(self, route: Route) -> Any:  # noqa: ANN401, what came over the wire
        length = int(self.headers.get("content-length") or 0)
        if route == "files.create":
            return self._received(length)
        content = self.rfile.read(length)
        if not content:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise ApiError(400, "We could not parse the JSON body of your request.") from error

    def _received(self, length: int) -> StoredFile:
        account = self.server.site.account
        file = account.new_file("", "")
        reader = MultipartReader(self.rfile, length, self.headers.get("content-type", ""))
        for name, filename, content in reader.parts():
            if name == "file":
                file.name = filename
                with file.path.open("wb") as out:
                    out.writelines(content)
            else:
                value = b"".join(content).decode("utf-8", "replace")
                file.purpose = value if name == "purpose" else file.purpose
        reader.drain()
        return file

    def _refuse_key(self) -> None:
        key = self.headers.get("authorization", "").removeprefix("Bearer ")
        right = self.server.site.account.options.api_key
        if not key or (right and key != right):
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")

    def _reply(self, status: int, record: Any, headers: dict[str, str] | None = None) -> None:  # noqa: ANN401, JSON
        content = json.dumps(record).encode()
        self._raw_reply(status, "application/json", content, headers or {})

    def _raw_reply(
        self, status: int, content_type: str, content: bytes, headers: dict[str, str]
    ) -> None:
        self._replied = True
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-request-id", f"req_{len(self.server.site.requests):06d}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _send_file(self, file: StoredFile, faults: list[Fault]) -> None:
        asked = self.headers.get("range") if self.server.site.account.options.ranges else None
        part = content_parts(file.path, asked, faults)
        self._replied = True
        self.send_response(part.status)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(part.stated))
        self.send_header("Content-Disposition", f'attachment; filename="{file.name}"')
        if part.status == 206:
            self.send_header("Content-Range", part.content_range)
        self.end_headers()
        with file.path.open("rb") as source:
            source.seek(part.start)
            left = part.sent
            while left and (chunk := source.read(min(left, 1 << 18))):
                self.wfile.write(chunk)
                left -= len(chunk)
        self.close_connection = self.close_connection or part.sent < part.stated


def _route_of(method: str, path: str) -> tuple[Route, str]:
    for known, form, route in _ROUTES:
        found = re.fullmatch(form, path)
        if known == method and found:
            return route, found[1] if found.groups() else ""
    raise ApiError(404, f"Invalid URL ({method} {path})")


def _records(
    site: Site,
    name: str,
    query: dict[str, str],
    body: Any,  # noqa: ANN401, what came over the wire
) -> dict[Route, Callable[[], dict[str, Any]]]:
    account, jobs = site.account, site.jobs
    return {
        "files.create": lambda: account.keep(body),
        "files.list": lambda: account.list_files(query),
        "files.get": lambda: account.file(name).record(),
        "files.delete": lambda: account.delete_file(name),
        "batches.create": lambda: jobs.create(body),
        "batches.list": lambda: jobs.list(query),
        "batches.get": lambda: jobs.get(name),
        "batches.cancel": lambda: jobs.cancel(name),
        "embeddings": lambda: _embed(account, body),
    }


def _embed(account: Account, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
    texts, counts = checked_request(body, account.options)
    record = reply_body(body, texts, sum(counts), account.options)
    account.bill.add(Bill.DIRECT, texts, sum(counts))
    return record
