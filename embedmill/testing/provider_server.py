"""What the fake servers of providers have in common: an account, an address, a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic

from embedmill.testing.fake_api import FakeApi
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fake_server import (
    FakeServer,
    command_line,
    given_faults,
    serve_until_ended,
)
from embedmill.testing.fault_plan import FaultT
from embedmill.testing.provider_account import OptionsT, ProviderAccount
from embedmill.testing.request_rates import RateLimits, add_rate_options, rates_given


class ProviderServer(FakeServer[FaultT], Generic[OptionsT, FaultT]):
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        account: what it holds.
        bill: what was charged for.
        prefix: of all paths, as far as clients are told of it.
    """

    prefix: ClassVar[str] = "/v1"

    def __init__(
        self,
        account: ProviderAccount[OptionsT, FaultT],
        api: FakeApi[FaultT],
        *,
        port: int = 0,
    ) -> None:
        """Serve soon.

        Args:
            account: what it holds.
            api: that answers out of it.
            port: 0: any that is free.
        """
        self.account = account
        self.bill: Bill = account.bill
        super().__init__(api, port=port)

    @property
    def base_url(self) -> str:
        """Address for a client."""
        return f"{self.url}{self.prefix}"


def serve_provider(
    name: str,
    about: str | None,
    kind: type[FaultT],
    made_of: Callable[[Iterable[FaultT], RateLimits, int], ProviderServer[Any, FaultT]],
    arguments: Sequence[str] | None,
) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the base URL.

    Args:
        name: of the module.
        about: what it says of itself.
        kind: of its faults.
        made_of: the server of its faults, the limits of its rates, its port.
        arguments: of the command line.
    """
    parser = command_line(name, about or "")
    add_rate_options(parser)
    given = parser.parse_args(arguments)
    server = made_of(given_faults(given.faults, kind), rates_given(given), given.port)
    return serve_until_ended(server, server.base_url)
