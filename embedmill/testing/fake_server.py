"""The frame of all fake servers: real HTTP on loopback, threads, planned faults, replies.

:mod:`embedmill.testing.fake_api` says what it does for a request, and in which order.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Generic, NoReturn, Self

from embedmill.errors import RefusedError
from embedmill.testing.fake_api import Call, FakeApi, HangUp, RefusedRequest, Reply, Request
from embedmill.testing.fault_plan import FaultT, load_faults
from embedmill.testing.kept_port import kept_port, port_of

_PAGE = (
    b"<html><head><title>502 Bad Gateway</title><style>h1 {color: red}</style></head>"
    b"<body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>"
)


class FakeServer(Generic[FaultT]):
    """An API in threads of this process. A context: it serves within the ``with``.

    Attributes:
        plan: what goes wrong; may be added to while it serves.
        requests: method and path (with its query) of every request, answered or not.
    """

    def __init__(self, api: FakeApi[FaultT], *, port: int = 0) -> None:
        """Serve soon.

        Args:
            api: that answers.
            port: 0: any that is free.
        """
        self.plan = api.plan
        self.requests: list[tuple[str, str]] = []
        self._api = api
        self._ended = threading.Event()
        self._kept = kept_port(port)
        self._port = port_of(self._kept)
        self._listener = _Listener(self._port, self)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Address for a client, without a path."""
        return f"http://127.0.0.1:{self._port}"

    def pause(self) -> None:
        """Refuse connections until :meth:`resume`; address and what the API holds stay ours."""
        self._ended.set()
        if self._thread is not None:
            self._listener.shutdown()
            self._listener.end_connections()
            self._thread.join()
            self._thread = None
        self._listener.server_close()

    def resume(self) -> None:
        """Serve again under the same address."""
        self._listener = _Listener(self._port, self)
        self._begin()

    def close(self) -> None:
        """Serve no more, and give the port back."""
        self.pause()
        self._kept.close()

    def reply_to(self, request: Request) -> Reply:
        """Answer one request as the module says.

        Raises:
            HangUp: there is to be no reply.
        """
        try:
            route, names = self._api.route_of(request)
        except RefusedRequest as refused:
            return refused.reply
        call = Call(request, route, names, self.plan.next_of(route))
        try:
            reply = self._instead(call) or self._api.answer(call)
        except RefusedRequest as refused:
            reply = refused.reply
        return self._spoiled(reply, call)

    def with_id(self, reply: Reply, number: int) -> Reply:
        """The reply with the request's id, where the API has ids."""
        name = self._api.request_id_header
        if not name:
            return reply
        return replace(reply, headers={**reply.headers, name: f"req_{number:06d}"})

    def _instead(self, call: Call[FaultT]) -> Reply | None:
        for fault in call.faults:
            match fault.do:
                case "slow":
                    self._pass(fault.seconds)
                case "drop":
                    raise HangUp
                case "html-502" | "html-413" | "html-200":
                    return Reply(int(fault.do[-3:]), _PAGE, "text/html")
                case _:
                    self._api.refuse(fault, call.request)
        return None

    def _spoiled(self, reply: Reply, call: Call[FaultT]) -> Reply:
        if slow := call.fault("slow-reply"):
            # The work is a part of it: a reply begins when it is planned to, whatever that takes.
            self._pass(call.request.arrived + slow.seconds - time.monotonic())
        if call.fault("drop-reply"):
            raise HangUp
        if call.fault("cut-reply") and isinstance(reply.content, bytes):
            whole = reply.content
            return replace(reply, content=whole[: len(whole) // 2], stated=len(whole))
        return reply

    def _pass(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise HangUp

    def _begin(self) -> None:
        self._ended.clear()
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    """Listens on loopback; closing it ends all connections."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, port: int, frame: FakeServer[Any]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.frame = frame
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
        """A client that hangs up is no news; anything else is a mistake of the fake."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

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
    server: _Listener

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401, as in the base class
        """Say nothing: requests are in the frame's log."""

    def do_GET(self) -> None:
        """Answer."""
        frame = self.server.frame
        frame.requests.append((self.command, self.path))
        request = Request(self, len(frame.requests))
        try:
            reply = frame.reply_to(request)
        except HangUp:
            self.close_connection = True
            return
        finally:
            request.drain()
        self._send(frame.with_id(reply, request.number))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815, names of the base class

    def _send(self, reply: Reply) -> None:
        content, stated = reply.content, reply.stated
        parts: Iterable[bytes] = [content] if isinstance(content, bytes) else content
        if stated is None:
            assert isinstance(content, bytes), "parts need their length stated"
            stated = len(content)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(stated))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        sent = 0
        for part in parts:
            self.wfile.write(part)
            sent += len(part)
        self.wfile.flush()
        self.close_connection = self.close_connection or sent < stated


def command_line(prog: str, about: str) -> argparse.ArgumentParser:
    """A parser with what the commands of all fake servers take: ``--port`` and ``--faults``."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--port", type=_port, default=0, help="0: any that is free")
    parser.add_argument("--faults", type=Path, help="YAML list of what goes wrong")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"there is no port {port}")
    return port


def given_faults(path: Path | None, kind: type[FaultT]) -> list[FaultT]:
    """The faults of ``--faults``; none without it.

    Raises:
        ValueError: the file is no list of such faults.
        OSError: it cannot be read.
    """
    return load_faults(path, kind) if path else []


def serve_until_ended(server: FakeServer[Any], address: str) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the address."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with server:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        ended.wait()
    return 0


def why_not_served(error: ValueError | OSError) -> RefusedError:
    """What a person is told of a server that cannot be had: its plan is at fault, or its port.

    Args:
        error: that its ``main`` has raised.
    """
    if isinstance(error, ValueError):
        return RefusedError(f"the plan of faults makes no sense: {error}")
    if error.filename is not None:
        return RefusedError(f"{error.filename} cannot be read: {error.strerror}")
    return RefusedError(error.strerror or str(error), hint="add --port 0 for any that is free")


def run_as_module(main: Callable[[], int]) -> NoReturn:
    """Run a ``main`` and end the process; where it cannot serve, standard error says why."""
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        refusal = why_not_served(error)
        hint = f"\n  next: {refusal.hint}" if refusal.hint else ""
        sys.stderr.write(f"error: {refusal}{hint}\n")
        sys.exit(2)
