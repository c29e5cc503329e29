"""A fake OpenAI server as strict as the real one: real HTTP on loopback, and faults by plan.

It embeds with hashed words, keeps a bill of every text that was charged for, and runs jobs through
their life-cycle as it is asked about them. ``python -m embedmill.testing.openai_server`` serves
until it is ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from embedmill.testing.openai_account import Account, Bill, ServerOptions
from embedmill.testing.openai_faults import Fault, FaultPlan, load_faults
from embedmill.testing.openai_http import Site, SiteServer
from embedmill.testing.openai_jobs import Jobs

__all__ = ["Fault", "OpenAIServer", "ServerOptions", "main"]


class OpenAIServer:
    """The server, in threads of this process. A context: it serves within the ``with``.

    Attributes:
        base_url: for the settings, with ``/v1``.
        plan: what goes wrong; may be added to while it serves.
        bill: what was charged for.
        account: files and options.
        jobs: all of them.
        requests: method and path of every request, answered or not.
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
        self.plan = FaultPlan(faults)
        account = Account(
            Path(self._temporary.name) if self._temporary else folder or Path(),
            options or ServerOptions(),
            self.plan,
        )
        self.bill: Bill = account.bill
        self.account = account
        self.jobs = Jobs(account)
        site = Site(account, self.jobs)
        self.requests = site.requests
        self._server = SiteServer(port, site)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def base_url(self) -> str:
        """Address for a client."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def posts(self, path: str) -> int:
        """How many requests with a body a path has had, answered or not."""
        return sum(request == ("POST", f"/v1{path}") for request in self.requests)

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
        if self._temporary:
            self._temporary.cleanup()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the first line of the output is the base URL."""
    parser = argparse.ArgumentParser(prog="openai_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--faults", type=Path, help="YAML list of what goes wrong")
    parser.add_argument("--polls", type=int, default=1, help="questions before a job moves on")
    parser.add_argument("--enqueued-tokens", type=int, help="that may wait in jobs")
    parser.add_argument("--folder", type=Path, help="for the files' bytes; kept")
    given = parser.parse_args(arguments)
    faults = load_faults(given.faults) if given.faults else []
    options = ServerOptions(polls_per_status=given.polls, enqueued_tokens=given.enqueued_tokens)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with OpenAIServer(faults, options=options, port=given.port, folder=given.folder) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
