"""What the commands that run something share: executor, progress, signals, summary."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from types import FrameType
from typing import Annotated

import typer

from embedmill.errors import StopRunError
from embedmill.executor import Executor
from embedmill.run_report import RunReport
from embedmill.settings import Settings
from embedmill.waiting_executor import WaitingExecutor
from pipelines.cli_options import DEAD_LETTERS, OK, WAITING, err, print_lines, to_type
from pipelines.cli_reading import print_json
from pipelines.deferred_executor import DeferredExecutor
from pipelines.lasting import require_lasting
from pipelines.progress import shown
from pipelines.run_options import RunOptions
from pipelines.summary import summary

LocalOption = Annotated[bool, typer.Option("--local", help="In this process, without Ray.")]
RayOption = Annotated[
    bool,
    typer.Option("--ray", help="With workers over Ray, however little there is to do."),
]
TakeOverOption = Annotated[
    bool,
    typer.Option("--take-over", help="Take the index from a run that is dead but looks alive."),
]

AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="Of a running Ray cluster; in a Ray job it is known."),
]
NoWaitOption = Annotated[
    bool,
    typer.Option(
        "--no-wait", help="Submit embedding jobs and exit (status 8); run again to collect."
    ),
]
TolerateDeadOption = Annotated[
    bool, typer.Option("--tolerate-dead", help="Exit with 0 although rows died.")
]


@contextmanager
def running(
    settings: Settings,
    choices: RunOptions,
    *,
    local: bool,
    ray: bool = False,
    address: str | None = None,
    may_be_small: bool = False,
) -> Iterator[tuple[Executor, RunOptions]]:
    """An executor with options that show progress and heed signals; closed at the end.

    Standard output is for the result: what Ray prints meanwhile (a worker died) goes to standard
    error.

    Args:
        settings: of the index.
        choices: of this run.
        local: inline, whatever the settings say.
        ray: over Ray, whatever the settings say.
        address: of a cluster to run on, whatever the settings say.
        may_be_small: begin inline and leave it to the run to go on over Ray, unless the settings
            say where, or there is a cluster to work on.

    Raises:
        RefusedError: what the run would leave would not outlast the Ray job that this is.
    """
    require_lasting(settings)
    stop = threading.Event()
    inline, workers = WaitingExecutor(), _ray_executor(settings, address)
    # What is typed comes before what is in the file: a named cluster is where it runs.
    where = "inline" if local else "ray" if ray or address else settings.run.executor
    if where == "auto" and (os.environ.get("RAY_ADDRESS") or not may_be_small):
        where = "ray"
    with _stop_on_signals(stop), redirect_stdout(sys.stderr), shown(err) as on_progress:
        try:
            yield (
                workers if where == "ray" else inline,
                replace(
                    choices,
                    on_progress=on_progress,
                    on_notice=_notice,
                    larger=workers if where == "auto" else None,
                    stop=stop,
                ),
            )
        finally:
            inline.close()
            workers.close()


def _notice(text: str) -> None:
    err.say(to_type(text))


def _ray_executor(settings: Settings, address: str | None) -> Executor:
    def start() -> Executor:
        from actors.actor_pool import Deadlines, RayExecutor

        run = settings.run
        return RayExecutor(
            address=address,
            object_store_bytes=run.object_store_bytes,
            deadlines=Deadlines(run.start_deadline_s, run.call_deadline_s),
        )

    return DeferredExecutor("ray", start)


@contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """The first signal asks the run to stop, the second ends the process as usual."""

    def ask(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()
        # Where the terminal is gone, nobody is told.
        with suppress(OSError, StopRunError):
            err.print("stopping after what is in flight; once more to end at once")

    heard = [signal.SIGINT, signal.SIGTERM]
    # What nohup has put aside stays so.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def finish(report: RunReport, *, as_json: bool, tolerate_dead: bool = False) -> None:
    """Print the summary and end with the status that fits."""
    if as_json:
        print_json(report.to_json())
    else:
        print_lines(map(to_type, summary(report)))
    if report.status == "waiting":
        raise typer.Exit(WAITING)
    raise typer.Exit(OK if report.complete or tolerate_dead else DEAD_LETTERS)
