"""A fake Voyage server as strict as the real one: real HTTP on loopback, and faults by plan.

It embeds with hashed words and keeps a bill of every text that was charged for. Voyage's own client
(0.5.0), and OpenAI's for its jobs, understand it: ``tests/contract/test_official_clients.py`` shows
so where the former is installed. ``python -m embedmill.testing.voyage_server`` serves until it is
ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from embedmill.testing.fake_bill import Bill
from embedmill.testing.fake_server import (
    FakeServer,
    command_line,
    given_faults,
    serve_until_ended,
)
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.request_rates import add_rate_options, rates_given
from embedmill.testing.voyage_account import Account, ServerOptions
from embedmill.testing.voyage_api import VoyageApi
from embedmill.testing.voyage_faults import Fault

__all__ = ["Fault", "ServerOptions", "VoyageServer", "main"]


class VoyageServer(FakeServer[Fault]):
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        account: what it holds.
        bill: what was charged for.
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
        self.account = Account(options or ServerOptions(), FaultPlan(Fault, faults))
        self.bill: Bill = self.account.bill
        super().__init__(VoyageApi(self.account), port=port)

    @property
    def base_url(self) -> str:
        """Address for a client, with ``/v1``."""
        return f"{self.url}/v1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the base URL."""
    parser = command_line("voyage_server", __doc__)
    add_rate_options(parser)
    given = parser.parse_args(arguments)
    options = ServerOptions(rates=rates_given(given))
    server = VoyageServer(given_faults(given.faults, Fault), options=options, port=given.port)
    return serve_until_ended(server, server.base_url)


if __name__ == "__main__":
    sys.exit(main())
