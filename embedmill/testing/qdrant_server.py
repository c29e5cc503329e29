"""A fake Qdrant server as strict as the real one: real HTTP on loopback, and faults by plan.

It keeps what it is given in memory and searches by comparing with every point. Its refusals carry
the statuses and words of the real server, whose sources (1.13 to 1.20) they were read from.
``python -m embedmill.testing.qdrant_server`` serves until it is ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedmill.testing.fake_server import (
    FakeServer,
    command_line,
    given_faults,
    run_as_module,
    serve_until_ended,
)
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.qdrant_fake_api import QdrantApi
from embedmill.testing.qdrant_fake_faults import ROUTES, Fault
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


class QdrantServer(FakeServer[Fault]):
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        state: what it holds; outlives a pause.
    """

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        *,
        options: ServerOptions | None = None,
        port: int = 0,
    ) -> None:
        options = options or ServerOptions()
        self.state = FakeState(options.strict_mode, options.optimising)
        api = QdrantApi(
            self.state,
            FaultPlan(Fault, faults),
            api_key=options.api_key,
            read_key=options.read_key,
            discard=options.discard,
        )
        super().__init__(api, port=port)

    def ids(self, collection: str) -> set[int | str]:
        """Ids of the points of a collection."""
        with self.state.lock:
            return set(self.state.collection(collection).points.by_id)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the URL."""
    parser = command_line("qdrant_server", __doc__)
    parser.add_argument("--discard", action="store_true", help="upserts are not looked at")
    given = parser.parse_args(arguments)
    options = ServerOptions(discard=given.discard)
    faults = given_faults(given.faults, Fault)
    server = QdrantServer(faults, options=options, port=given.port)
    return serve_until_ended(server, server.url)


if __name__ == "__main__":
    run_as_module(main)
