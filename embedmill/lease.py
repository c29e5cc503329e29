"""The lease on an index: makes the refusal of a second run early and friendly.

Safety never rests on it: segment numbers and manifest numbers are created only if absent, so a
second writer collides whatever the lease says. Leases are numbered files; the newest one holds.
Taking over means creating the next number, which only one can. No decision compares clocks of two
hosts: whether a holder elsewhere is alive shows in whether its heartbeat still changes.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import psutil

from embedmill.errors import EmbedmillError, IndexLockedError
from embedmill.run_context import utc_now
from embedmill.sealed_json import sealed, unsealed
from embedmill.workspace import Workspace, create_once

log = logging.getLogger(__name__)
HEARTBEAT_S = 10.0
# A holder on another host whose heartbeat does not change for this long is taken for dead.
_SILENCE_S = 2.5 * HEARTBEAT_S


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease.

    Attributes:
        host: name of the machine.
        pid: of the process.
        process_started: seconds since the epoch by that machine's clock; tells a process from a
            later one with the same pid.
        since: UTC, ISO 8601, for people.
        purpose: what it does (``ingest``).
    """

    host: str
    pid: int
    process_started: float
    since: str
    purpose: str

    @classmethod
    def this_process(cls, purpose: str) -> Self:
        """The holder that we are."""
        started = psutil.Process().create_time()
        return cls(socket.gethostname(), os.getpid(), started, utc_now(), purpose)

    def is_here(self) -> bool:
        """Whether it ran on this machine."""
        return self.host == socket.gethostname()

    def is_running(self) -> bool:
        """Whether its process lives; only to be asked on its own machine."""
        try:
            started = psutil.Process(self.pid).create_time()
        except psutil.NoSuchProcess:
            return False
        # The kernel gives hundredths of a second.
        return abs(started - self.process_started) < 1.0


# Leases that living objects of this process hold: (workspace, index).
_held_here: set[tuple[str, str]] = set()


@dataclass(slots=True)
class Lease:
    """A lease that is held until the block ends. A context manager.

    Attributes:
        number: of the lease file; grows with every taking.
        lost: set when somebody took over.
    """

    number: int
    lost: threading.Event
    _workspace: Workspace
    _folder: str
    _key: tuple[str, str]
    _ended: threading.Event = field(default_factory=threading.Event)
    _beats: int = 0

    def __enter__(self) -> Self:
        _held_here.add(self._key)
        threading.Thread(target=self._beat_until_ended, name="lease", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        _held_here.discard(self._key)
        if kind is None or issubclass(kind, Exception):
            self._release()

    def _release(self) -> None:
        try:
            create_once(self._workspace, f"{self._folder}/{self.number:08d}.released", b"1")
        except EmbedmillError as error:
            # The next run finds the process gone and takes the lease.
            log.warning("the lease could not be released: %s", error)

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            try:
                self._beat()
            except EmbedmillError as error:
                log.warning("the lease's heartbeat could not be written: %s", error)

    def _beat(self) -> None:
        if self._workspace.read(f"{self._folder}/{self.number + 1:08d}.json") is not None:
            self.lost.set()
            return
        self._beats += 1
        path = f"{self._folder}/{self.number:08d}.beat"
        self._workspace.replace(path, str(self._beats).encode())


def take_lease(
    workspace: Workspace,
    index: str,
    purpose: str,
    *,
    take_over: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Take the lease on an index.

    Args:
        workspace: of the index.
        index: its name.
        purpose: what for, shown to others.
        take_over: take it from a holder that seems alive; whatever it still tries to commit
            collides.
        sleep: waits for a heartbeat of a holder on another machine.

    Raises:
        IndexLockedError: somebody else holds it; the message says who, since when, and how to
            take over.
    """
    folder = f"indexes/{index}/lease"
    key = (workspace.url, index)
    number, released = _newest(workspace, folder)
    if number and not released and not take_over:
        _require_dead(workspace, folder, number, key, sleep)
    me = Holder.this_process(purpose)
    record = {name: getattr(me, name) for name in Holder.__slots__}
    if not create_once(workspace, f"{folder}/{number + 1:08d}.json", sealed(record)):
        raise IndexLockedError(
            f"another run took the lease on index {index!r} a moment ago",
            hint="run the same command again when it has ended",
        )
    _forget_older(workspace, folder, number)
    return Lease(number + 1, threading.Event(), workspace, folder, key)


def _newest(workspace: Workspace, folder: str) -> tuple[int, bool]:
    names = [entry.path.rsplit("/", 1)[-1] for entry in workspace.list(folder)]
    numbers = [int(name[:8]) for name in names if re.fullmatch(r"\d{8}\.json", name)]
    newest = max(numbers, default=0)
    return newest, f"{newest:08d}.released" in names


def _require_dead(
    workspace: Workspace,
    folder: str,
    number: int,
    key: tuple[str, str],
    sleep: Callable[[float], None],
) -> None:
    data = workspace.read(f"{folder}/{number:08d}.json")
    if not data:
        # Deleted or torn by hand: nobody is named, so nobody is refused for.
        return
    record: dict[str, Any] = unsealed(data, f"{folder}/{number:08d}.json")
    holder = Holder(**record)
    mine = holder.is_here() and holder.pid == os.getpid() and holder.is_running()
    if mine and key not in _held_here:
        # A run of this very process that ended without releasing.
        return
    if holder.is_here() and not holder.is_running():
        return
    if not holder.is_here() and _is_silent(workspace, f"{folder}/{number:08d}.beat", sleep):
        return
    raise IndexLockedError(
        f"index {key[1]!r} is in use: {holder.purpose} by process {holder.pid} on {holder.host}, "
        f"since {holder.since}",
        hint="wait for it to end; if you know that it is dead, run again with --take-over",
    )


def _is_silent(workspace: Workspace, path: str, sleep: Callable[[float], None]) -> bool:
    before = workspace.read(path)
    sleep(_SILENCE_S)
    return workspace.read(path) == before


def _forget_older(workspace: Workspace, folder: str, newest: int) -> None:
    """Delete the files of earlier leases; the newest number stays, so that numbers only grow."""
    old = [
        entry.path
        for entry in workspace.list(folder)
        if int(entry.path.rsplit("/", 1)[-1][:8]) <= newest
    ]
    workspace.delete(sorted(old))
