"""A fake Voyage server as strict as the real one: real HTTP on loopback, and faults by plan.

It embeds with hashed words and keeps a bill of every text that was charged for. Voyage's own client
(0.5.0), and OpenAI's for its jobs, understand it: ``tests/contract/test_official_clients.py`` shows
so where the former is installed. ``python -m embedmill.testing.voyage_server`` serves until it is
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from embedmill.testing.fake_server import run_as_module
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.provider_server import ProviderServer, serve_provider
from embedmill.testing.voyage_account import Account, ServerOptions
from embedmill.testing.voyage_api import VoyageApi
from embedmill.testing.voyage_faults import Fault

__all__ = ["Fault", "ServerOptions", "VoyageServer", "main"]


class VoyageServer(ProviderServer[ServerOptions, Fault]):
    """The server, in threads of this process. A context: it serves within the ``with``."""

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
        super().__init__(account, VoyageApi(account), port=port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the base URL."""
    return serve_provider(
        "voyage_server",
        __doc__,
        Fault,
        lambda faults, rates, port: VoyageServer(
            faults, options=ServerOptions(rates=rates), port=port
        ),
        arguments,
    )


if __name__ == "__main__":
    run_as_module(main)
