"""Progress of a run: a live line on a terminal, else one line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from embedmill.plain_numbers import number_of
from pipelines.run_options import Progress

# Short enough to see that it lives, long enough to keep a job's log readable.
LINE_EVERY_S = 10.0


@contextmanager
def shown(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Progress], None]]:
    """Show progress while the block runs.

    Args:
        console: where; standard error, so that standard output stays for results.
        clock: monotonic seconds.

    Yields:
        What to call with each progress.
    """
    started = clock()
    if console.is_terminal:
        with console.status("starting workers") as status:
            yield lambda progress: status.update(line(progress, clock() - started))
        return
    last = [started]

    def print_now_and_then(progress: Progress) -> None:
        if clock() - last[0] >= LINE_EVERY_S:
            last[0] = clock()
            console.print(line(progress, clock() - started), highlight=False, soft_wrap=True)

    yield print_now_and_then


def line(progress: Progress, seconds: float) -> str:
    """One line: what was read, what was embedded, what is left, how fast."""
    documents = progress.documents
    read = ""
    if progress.scanning or documents.read:
        read = (
            f"{'reading' if progress.scanning else 'read'} {number_of(documents.read, 'document')} "
            f"({documents.unchanged:,} unchanged, {documents.dead:,} dead); "
        )
    rate = progress.chunks / seconds if seconds > 0 else 0.0
    jobs = f"; waiting for {number_of(progress.jobs, 'embedding job')}" if progress.jobs else ""
    return (
        f"{seconds:.0f} s: {read}{number_of(progress.chunks, 'chunk')} embedded, {rate:.0f}/s; "
        f"{number_of(progress.applied, 'segment')} stored, {progress.waiting:,} to go{jobs}"
    )
