"""A fake OpenAI server as strict as the real one: real HTTP on loopback, and faults by plan.

It embeds with hashed words, keeps a bill of every text that was charged for, and runs jobs through
their life-cycle as it is asked about them. ``python -m embedmill.testing.openai_server`` serves
until it is ended.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from embedmill.testing.fake_server import (
    command_line,
    given_faults,
    run_as_module,
    serve_until_ended,
)
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.openai_account import Account, ServerOptions
from embedmill.testing.openai_api import OpenAIApi
from embedmill.testing.openai_faults import Fault
from embedmill.testing.openai_jobs import Jobs
from embedmill.testing.provider_server import ProviderServer
from embedmill.testing.request_rates import add_rate_options, rates_given

__all__ = ["Fault", "OpenAIServer", "ServerOptions", "main"]


class OpenAIServer(ProviderServer[ServerOptions, Fault]):
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        jobs: all of them.
    """

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        *,
        options: ServerOptions | None = None,
        port: int = 0,
        folder: Path | None = None,
    ) -> None:
        """Serve soon.

        Args:
            faults: what goes wrong.
            options: how it behaves otherwise.
            port: 0: any that is free.
            folder: for the files' bytes; without it one that is removed at the end.
        """
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="fake-openai-")
        account = Account(
            options or ServerOptions(),
            FaultPlan(Fault, faults),
            folder=Path(self._temporary.name) if self._temporary else folder or Path(),
        )
        self.jobs = Jobs(account)
        try:
            super().__init__(account, OpenAIApi(account, self.jobs), port=port)
        except OSError:
            if self._temporary:
                self._temporary.cleanup()
            raise

    def posts(self, path: str) -> int:
        """How many requests with a body a path has had, answered or not."""
        return sum(request == ("POST", f"/v1{path}") for request in self.requests)

    def close(self) -> None:
        """Serve no more, and forget what was uploaded."""
        super().close()
        if self._temporary:
            self._temporary.cleanup()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the base URL."""
    parser = command_line("openai_server", __doc__)
    parser.add_argument("--polls", type=int, default=1, help="questions before a job moves on")
    parser.add_argument("--enqueued-tokens", type=int, help="that may wait in jobs")
    parser.add_argument("--folder", type=Path, help="for the files' bytes; kept")
    parser.add_argument("--canned", action="store_true", help="the same vectors for all texts")
    add_rate_options(parser)
    given = parser.parse_args(arguments)
    options = ServerOptions(
        polls_per_status=given.polls,
        enqueued_tokens=given.enqueued_tokens,
        canned=given.canned,
        rates=rates_given(given),
    )
    faults = given_faults(given.faults, Fault)
    server = OpenAIServer(faults, options=options, port=given.port, folder=given.folder)
    return serve_until_ended(server, server.base_url)


if __name__ == "__main__":
    run_as_module(main)
