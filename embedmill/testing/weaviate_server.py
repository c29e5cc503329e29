"""A fake Weaviate as strict as the real one: REST and gRPC on loopback, and faults by plan.

Definitions of collections, aliases and shards over REST; batches of objects, deletions, searches,
counts and tenants over gRPC, in the messages that the client brings along. It keeps what it is
given in memory and searches by comparing with every vector. ``python -m
embedmill.testing.weaviate_server`` serves until it is ended.
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
from embedmill.testing.weaviate_fake_api import WeaviateApi
from embedmill.testing.weaviate_fake_faults import Fault
from embedmill.testing.weaviate_fake_grpc import GrpcSide
from embedmill.testing.weaviate_fake_state import FakeState, ServerOptions

__all__ = ["Fault", "ServerOptions", "WeaviateServer", "main"]


class WeaviateServer(FakeServer[Fault]):
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
        grpc_port: int = 0,
    ) -> None:
        """Serve soon.

        Args:
            faults: what goes wrong.
            options: how it behaves otherwise.
            port: of the REST interface; 0: any that is free.
            grpc_port: of the gRPC interface; 0: any that is free.
        """
        plan = FaultPlan(Fault, faults)
        self.state = FakeState(options or ServerOptions())
        self._grpc = GrpcSide(self.state, plan, grpc_port)
        super().__init__(WeaviateApi(self.state, plan), port=port)

    @property
    def grpc_url(self) -> str:
        """Address of the gRPC interface."""
        return f"http://127.0.0.1:{self._grpc.port}"

    def ids(self, class_name: str) -> set[str]:
        """Ids of the objects of a collection, of all its tenants."""
        with self.state.lock:
            found = self.state.get(class_name)
            return {record for objects in found.objects.values() for record in objects}

    def pause(self) -> None:
        """Refuse connections until :meth:`resume`; what it holds stays."""
        super().pause()
        self._grpc.end()

    def close(self) -> None:
        """Serve no more, and give the ports back."""
        super().close()
        self._grpc.close()

    def _begin(self) -> None:
        self._grpc.begin()
        super()._begin()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output has both addresses."""
    parser = command_line("weaviate_server", __doc__)
    parser.add_argument("--grpc-port", type=int, help="default: the one after --port")
    parser.add_argument("--version", default=ServerOptions().version, help="that it says it is")
    parser.add_argument("--discard", action="store_true", help="batches are not looked at")
    given = parser.parse_args(arguments)
    after = given.port + 1 if given.port else 0
    server = WeaviateServer(
        given_faults(given.faults, Fault),
        options=ServerOptions(version=given.version, discard=given.discard),
        port=given.port,
        grpc_port=after if given.grpc_port is None else given.grpc_port,
    )
    return serve_until_ended(server, f"{server.url} {server.grpc_url}")


if __name__ == "__main__":
    run_as_module(main)
