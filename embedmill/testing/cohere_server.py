"""A fake Cohere server as strict as the real one: real HTTP on loopback, and faults by plan.

It embeds with hashed words and keeps a bill of every text that was charged for. Cohere's own client
understands it, as ``tests/contract/test_official_clients.py`` shows. ``python -m
embedmill.testing.cohere_server`` serves until it is ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedmill.testing.cohere_account import Account, ServerOptions
from embedmill.testing.cohere_api import CohereApi
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fake_server import run_as_module
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.provider_server import ProviderServer, serve_provider

__all__ = ["CohereServer", "Fault", "ServerOptions", "main"]


class CohereServer(ProviderServer[ServerOptions, Fault]):
    """The server, in threads of this process. A context: it serves within the ``with``."""

    # Versions are in the paths.
    prefix = ""

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
        account = Account(options or ServerOptions(), FaultPlan(Fault, faults))
        super().__init__(account, CohereApi(account), port=port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the base URL."""
    return serve_provider(
        "cohere_server",
        __doc__,
        Fault,
        lambda faults, rates, port: CohereServer(
            faults, options=ServerOptions(rates=rates), port=port
        ),
        arguments,
    )


if __name__ == "__main__":
    run_as_module(main)
