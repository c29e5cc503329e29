"""A fake Qdrant server as strict as the real one: real HTTP on loopback, and faults by plan.

It keeps what it is given in memory and searches by comparing with every point. Its refusals carry
the statuses and words of the real server, whose sources (1.13 to 1.20) they were read from.
``python -m embedmill.testing.qdrant_server`` serves until it is ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embedmill.testing.qdrant_fake_faults import ROUTES, Fault, FaultPlan, load_faults
from embedmill.testing.qdrant_fake_http import Site, SiteServer
from embedmill.testing.qdrant_fake_state import FakeState

__all__ = ["ROUTES", "Fault", "QdrantServer", "ServerOptions", "main"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How it behaves when nothing goes wrong.

    Attributes:
        api_key: that is asked for; empty: none.
        read_key: that may only read; empty: none.
        strict_mode: of every collection, as the real server's ``strict_mode_config``.
        optimising: looks that find a collection yellow after its graph was changed.
        discard: answer upserts without looking at them, for measuring clients.
    """

    api_key: str = ""
    read_key: str = ""
    strict_mode: Mapping[str, Any] = field(default_factory=dict)
    optimising: int = 0
    discard: bool = False


class QdrantServer:
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        plan: what goes wrong; may be added to while it serves.
        state: what it holds; outlives a pause.
        requests: method and path of every request, answered or not.
    """

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        *,
        options: ServerOptions | None = None,
        port: int = 0,
    ) -> None:
        options = options or ServerOptions()
        self.plan = FaultPlan(faults)
        self.state = FakeState(options.strict_mode, options.optimising)
        self._site = Site(self.state, self.plan, options.api_key, options.read_key, options.discard)
        self.requests = self._site.requests
        self._server = SiteServer(port, self._site)
        self._port = self._server.server_port
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Address for a client."""
        return f"http://127.0.0.1:{self._port}"

    def ids(self, collection: str) -> set[int | str]:
        """Ids of the points of a collection."""
        with self.state.lock:
            return set(self.state.collection(collection).points.by_id)

    def pause(self) -> None:
        """Refuse connections until :meth:`resume`; what it holds stays."""
        self._end()

    def resume(self) -> None:
        """Serve again under the same address."""
        self._server = SiteServer(self._port, self._site)
        self._begin()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _begin(self) -> None:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def _end(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._server.end_connections()
            self._thread.join()
            self._thread = None
        self._server.server_close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the URL."""
    parser = argparse.ArgumentParser(prog="qdrant_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--faults", type=Path, help="YAML list of what goes wrong")
    parser.add_argument("--discard", action="store_true", help="upserts are not looked at")
    given = parser.parse_args(arguments)
    faults = load_faults(given.faults) if given.faults else []
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    options = ServerOptions(discard=given.discard)
    with QdrantServer(faults, options=options, port=given.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
