"""What runs in an actor's process: one worker, its calls, and what it has to say."""

from __future__ import annotations

import gc
import logging
import os
import threading
from typing import TypeAlias

import ray

from embedmill.closing import let_go
from embedmill.executor import WorkerSpec

# Level, logger and text of a log record: plain, so that it travels whatever it was about.
Note: TypeAlias = tuple[int, str, str]
# A worker that warns of every row says no more than this in one call.
_MOST_NOTES = 100


class Host:
    """The actor: builds its worker, then runs its methods; several at a time where it can.

    What is logged meanwhile goes back with the result of a call: Ray would pass on everything that
    a library prints as well.
    """

    def __init__(self, spec: WorkerSpec, log_level: int) -> None:
        self._spec = spec
        self._worker: object | None = None
        self._building = threading.Lock()
        self._notes = _Notes()
        logging.getLogger().addHandler(self._notes)
        # Libraries are heard only when they warn.
        for package in ("actors", "embedmill"):
            logging.getLogger(package).setLevel(log_level)

    def process(self) -> tuple[int, str]:
        """Process id and node."""
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def build(self) -> None:
        """Build the worker. Not in the constructor: Ray would hide what that raises."""
        with self._building:
            if self._worker is None:
                self._worker = self._spec.factory(*self._spec.arguments)
                # What was imported stays: to look through it for garbage again and again takes a
                # writer of records 7 % of its time.
                gc.freeze()

    def run(self, method: str, parts: int, *arguments: object) -> list[object]:
        """Run a method of the worker.

        Returns:
            What the method returned, one element or ``parts + 1``; then the notes, also those of
            other calls that run meanwhile.
        """
        # Again, where building failed: the caller decides by the error how often.
        self.build()
        returned = getattr(self._worker, method)(*arguments)
        return [*(returned if parts else [returned]), self._notes.take()]

    def end(self) -> None:
        """Close the worker."""
        let_go(self._worker)


def host_of(spec: WorkerSpec) -> type[Host]:
    """The actor under its worker's name, by which ``top`` and ``ray list actors`` show it."""
    return type(getattr(spec.factory, "__name__", Host.__name__), (Host,), {})


class _Notes(logging.Handler):
    """Keeps records until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Note] = []
        self._more = 0

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._held) >= _MOST_NOTES:
            self._more += 1
            return
        try:
            text = record.getMessage()
        except (TypeError, ValueError, LookupError):
            # A library's message, whose arguments do not fit it: no reason to end a call.
            text = str(record.msg)
        self._held.append((record.levelno, record.name, text))

    def take(self) -> list[Note]:
        # The lock under which records are emitted.
        assert self.lock is not None
        with self.lock:
            notes, self._held = self._held, []
            more, self._more = self._more, 0
        if more:
            notes.append((logging.WARNING, __name__, f"and {more} more lines"))
        return notes
