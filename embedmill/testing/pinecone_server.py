"""A fake Pinecone as strict as the real one: real HTTP on loopback, and faults by plan.

Control and data plane of API 2026-07, as far as serverless indexes of dense vectors go: indexes,
namespaces and their aliases, upsert, delete, fetch, list, query and statistics. Search is exact.
Reads may lag behind writes, statistics and listings further. ``python -m
embedmill.testing.pinecone_server`` serves until it is ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedmill.testing.fake_server import (
    FakeServer,
    command_line,
    given_faults,
    run_as_module,
    serve_until_ended,
)
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.pinecone_fake_api import PineconeApi
from embedmill.testing.pinecone_fake_faults import Fault
from embedmill.testing.pinecone_fake_index import FakeIndex, Project, ServerOptions

__all__ = ["Fault", "PineconeServer", "ServerOptions", "main"]


class PineconeServer(FakeServer[Fault]):
    """The server, in threads of this process. A context: it serves within the ``with``.

    Its address is that of the control plane, which names those of the indexes.
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
        self._project = Project(options or ServerOptions())
        super().__init__(PineconeApi(self._project, FaultPlan(Fault, faults)), port=port)

    @property
    def indexes(self) -> dict[str, FakeIndex]:
        """All indexes by name."""
        return self._project.indexes

    def written(self, index: str, namespace: str) -> set[str]:
        """Ids of the records that were written and not deleted, whatever reads see."""
        return set(self.indexes[index].namespaces[namespace].written())


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the control plane's URL."""
    parser = command_line("pinecone_server", __doc__)
    parser.add_argument("--index-lag", type=float, default=0.0, help="seconds until reads see")
    parser.add_argument("--stats-lag", type=float, default=0.0, help="more, until counts see")
    parser.add_argument("--discard", action="store_true", help="upserts are not looked at")
    given = parser.parse_args(arguments)
    options = ServerOptions(
        index_lag_s=given.index_lag, stats_lag_s=given.stats_lag, discard=given.discard
    )
    faults = given_faults(given.faults, Fault)
    server = PineconeServer(faults, options=options, port=given.port)
    return serve_until_ended(server, server.url)


if __name__ == "__main__":
    run_as_module(main)
