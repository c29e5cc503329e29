"""A fake Pinecone as strict as the real one: real HTTP on loopback, and faults by plan.

Control and data plane of API 2026-07, as far as serverless indexes of dense vectors go: indexes,
namespaces and their aliases, upsert, delete, fetch, list, query and statistics. Search is exact.
Reads may lag behind writes, statistics and listings further. ``python -m
embedmill.testing.pinecone_server`` serves until it is ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from embedmill.testing.pinecone_fake_faults import Fault, FaultPlan, load_faults
from embedmill.testing.pinecone_fake_http import Site, SiteServer
from embedmill.testing.pinecone_fake_index import FakeIndex, Project, ServerOptions

__all__ = ["Fault", "PineconeServer", "ServerOptions", "main"]


class PineconeServer:
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        plan: what goes wrong; may be added to while it serves.
        requests: method and path of every request, answered or not.
    """

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        *,
        options: ServerOptions | None = None,
        port: int = 0,
    ) -> None:
        """Serve soon.

        Args:
            faults: what goes wrong.
            options: how it behaves otherwise.
            port: 0: any that is free.
        """
        self.plan = FaultPlan(faults)
        self._project = Project(options or ServerOptions())
        site = Site(self._project, self.plan)
        self.requests = site.requests
        self._server = SiteServer(port, site)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def url(self) -> str:
        """Address of the control plane; it names those of the indexes."""
        return self._server.url

    @property
    def indexes(self) -> dict[str, FakeIndex]:
        """All indexes by name."""
        return self._project.indexes

    def written(self, index: str, namespace: str) -> set[str]:
        """Ids of the records that were written and not deleted, whatever reads see."""
        return set(self.indexes[index].namespaces[namespace].written())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the control plane's URL."""
    parser = argparse.ArgumentParser(prog="pinecone_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--faults", type=Path, help="YAML list of what goes wrong")
    parser.add_argument("--index-lag", type=float, default=0.0, help="seconds until reads see")
    parser.add_argument("--stats-lag", type=float, default=0.0, help="more, until counts see")
    given = parser.parse_args(arguments)
    faults = load_faults(given.faults) if given.faults else []
    options = ServerOptions(index_lag_s=given.index_lag, stats_lag_s=given.stats_lag)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with PineconeServer(faults, options=options, port=given.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
