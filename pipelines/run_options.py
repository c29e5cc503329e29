"""What a person decides for one run, and what they learn of it while it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from embedmill.counts import DocumentCounts
from embedmill.errors import StopRunError
from embedmill.executor import Executor


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        documents: drafted so far.
        chunks: that have vectors so far.
        waiting: segments that are not applied yet.
        applied: segments applied so far.
        scanning: the source has not been read to its end.
        jobs: embedding jobs whose end is awaited.
    """

    documents: DocumentCounts
    chunks: int
    waiting: int
    applied: int
    scanning: bool
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a person decides for one run.

    Attributes:
        allow_deletes: delete whatever is gone, however much that is.
        reread: read also what is listed as it was when it was read last.
        on_progress: told a few times a second.
        on_notice: told, in one line, what a person should know of it.
        larger: goes on with an ingest that is more than its first executor should do; the caller
            closes it. None: the first one does it all.
        stop: when set, nothing new starts, what is in flight ends, and the run is resumable.
        take_over: take the lease from a holder that seems alive.
        wait_for_jobs: False ends the run when all embedding jobs are submitted.
        clock: monotonic seconds, for waits between tries.
        sleep: waits for so many seconds.
    """

    allow_deletes: bool = False
    reread: bool = False
    on_progress: Callable[[Progress], None] = lambda _: None
    on_notice: Callable[[str], None] = lambda _: None
    larger: Executor | None = None
    stop: threading.Event | None = None
    take_over: bool = False
    wait_for_jobs: bool = True
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class InterruptedRunError(StopRunError):
    """The run was asked to stop; everything that was committed is kept."""

    code = "interrupted"
