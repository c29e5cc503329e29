"""The lease on an index: makes the refusal of a second run early and friendly.

Safety never rests on it: segment numbers and manifest numbers are created only if absent, so a
second writer collides whatever the lease says. Leases are numbered files; the newest one holds.
Taking over means creating the next number, which only one can. No decision compares clocks of two
hosts: whether a holder elsewhere is alive shows in whether its heartbeat still changes.

An index has two: ``lease`` is held by whoever writes chunks and the version that readers see,
``build-lease`` by whoever builds another version beside it. A build of days keeps no sync waiting.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from embedmill.errors import (
    DamagedFileError,
    EmbedmillError,
    IndexLockedError,
    ShardOwnedElsewhereError,
)
from embedmill.numbered_files import delete_below
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
        place: which start of which machine, and which process namespace: containers may share a
            name, and a pid means a process only there.
        pid: of the process.
        process_started: seconds since the epoch by that machine's clock; tells a process from a
            later one with the same pid.
        since: UTC, ISO 8601, for people.
        purpose: what it does (``ingest``).
    """

    host: str
    place: str
    pid: int
    process_started: float
    since: str
    purpose: str

    @classmethod
    def this_process(cls, purpose: str) -> Self:
        """The holder that we are."""
        started = psutil.Process().create_time()
        return cls(socket.gethostname(), _place(), os.getpid(), started, utc_now(), purpose)

    @classmethod
    def read(cls, data: bytes | None) -> Self | None:
        """The holder that a lease file names; None when it was emptied, torn or deleted."""
        if not data:
            return None
        try:
            record = unsealed(data, "lease")
            return cls(**{name: record[name] for name in cls.__slots__})
        except (DamagedFileError, KeyError):
            return None

    def __str__(self) -> str:
        return f"{self.purpose} by process {self.pid} on {self.host}, since {self.since}"

    def is_here(self) -> bool:
        """Whether this process can tell if its process lives."""
        return (self.host, self.place) == (socket.gethostname(), _place())

    def is_running(self) -> bool:
        """Whether its process lives; only to be asked on its own machine."""
        try:
            process = psutil.Process(self.pid)
            started, status = process.create_time(), process.status()
        except psutil.NoSuchProcess:
            return False
        # A killed process whose parent has not asked for its status is dead all the same. The
        # kernel gives hundredths of a second.
        same = abs(started - self.process_started) < 1.0
        return same and status != psutil.STATUS_ZOMBIE


def _place() -> str:
    """Elsewhere than on Linux the name of the machine has to do."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


LeaseName = Literal["lease", "build-lease"]
# Leases that living objects of this process hold: workspace, index, which one.
_held_here: set[tuple[str, str, str]] = set()
# No two takings of one process leave the same bytes.
_takings = itertools.count()


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
    _key: tuple[str, str, str]
    _content: bytes
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

    def require_held(self) -> None:
        """See that no other run has taken it over.

        Raises:
            ShardOwnedElsewhereError: one has.
        """
        if self.lost.is_set():
            raise ShardOwnedElsewhereError(
                "another run took over the lease on this index; this one stops",
                hint="all that was committed is kept; the other run goes on with it",
            )

    def _release(self) -> None:
        try:
            # After a deletion by hand, this number may be another run's.
            if self._workspace.read(self._path("json")) == self._content:
                create_once(self._workspace, self._path("released"), b"1")
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
        if not self._is_ours():
            self.lost.set()
            return
        self._beats += 1
        self._workspace.replace(self._path("beat"), str(self._beats).encode())

    def _is_ours(self) -> bool:
        """Whether nobody took over; what somebody emptied or deleted by hand is put back."""
        own = self._path("json")
        files = _lease_files(self._workspace, self._folder)
        others = [_number(path) for path in files if path != own]
        if any(number > self.number for number in others):
            return False
        content = self._workspace.read(own)
        if content is None:
            # Deleted by hand; whoever came since began to count from 1.
            return not others and create_once(self._workspace, own, self._content)
        if content != self._content and Holder.read(content) is None:
            self._workspace.replace(own, self._content)
            return True
        return content == self._content

    def _path(self, ending: str) -> str:
        return f"{self._folder}/{self.number:08d}.{ending}"


def take_lease(
    workspace: Workspace,
    index: str,
    purpose: str,
    *,
    name: LeaseName = "lease",
    take_over: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Take the lease on an index.

    Args:
        workspace: of the index.
        index: its name.
        purpose: what for, shown to others.
        name: which of the index's leases.
        take_over: take it from a holder that seems alive; whatever it still tries to commit
            collides.
        sleep: waits for a heartbeat of a holder on another machine.

    Raises:
        IndexLockedError: somebody else holds it; the message says who, since when, and how to
            take over.
    """
    folder = f"indexes/{index}/{name}"
    key = (workspace.url, index, name)
    number, released = _newest(workspace, folder)
    if number and not released and not take_over:
        _require_dead(workspace, folder, number, key, sleep)
    me = Holder.this_process(purpose)
    record = {name: getattr(me, name) for name in Holder.__slots__}
    content = sealed({**record, "taking": next(_takings)})
    if not create_once(workspace, f"{folder}/{number + 1:08d}.json", content):
        raise IndexLockedError(
            f"another run took the lease on index {index!r} a moment ago",
            hint="run the same command again when it has ended",
        )
    _forget_older(workspace, folder, number)
    return Lease(number + 1, threading.Event(), workspace, folder, key, content)


def in_use_by(workspace: Workspace, index: str) -> str:
    """Who seems to work on an index now, for a message; "" when nobody does.

    A dead process of another machine counts: telling it from a slow one would take a minute.
    """
    names: tuple[LeaseName, ...] = ("lease", "build-lease")
    for folder in (f"indexes/{index}/{name}" for name in names):
        number, released = _newest(workspace, folder)
        holder = Holder.read(workspace.read(f"{folder}/{number:08d}.json"))
        if holder is None or released:
            continue
        if not holder.is_here() or holder.is_running():
            return str(holder)
    return ""


def _lease_files(workspace: Workspace, folder: str) -> list[str]:
    paths = (entry.path for entry in workspace.list(folder))
    return [path for path in paths if re.search(r"/\d{8}\.json$", path)]


def _newest(workspace: Workspace, folder: str) -> tuple[int, bool]:
    newest = max((_number(path) for path in _lease_files(workspace, folder)), default=0)
    return newest, workspace.read(f"{folder}/{newest:08d}.released") is not None


def _number(path: str) -> int:
    return int(path.rsplit("/", 1)[-1][:8])


def _require_dead(
    workspace: Workspace,
    folder: str,
    number: int,
    key: tuple[str, str, str],
    sleep: Callable[[float], None],
) -> None:
    holder = Holder.read(workspace.read(f"{folder}/{number:08d}.json"))
    who = "a run whose lease file cannot be read"
    if holder is not None:
        who = str(holder)
    if holder is not None and holder.is_here():
        # In this very process: a run that ended without releasing.
        mine = holder.pid == os.getpid() and key not in _held_here
        if mine or not holder.is_running():
            return
    else:
        log.warning("in use by %s; watching its heartbeat for %.0f s", who, _SILENCE_S)
        if _is_silent(workspace, f"{folder}/{number:08d}.beat", sleep):
            return
    raise IndexLockedError(
        f"index {key[1]!r} is in use: {who}",
        hint="wait for it to end; if you know that it is dead, run again with --take-over",
    )


def _is_silent(workspace: Workspace, path: str, sleep: Callable[[float], None]) -> bool:
    before = workspace.read(path)
    sleep(_SILENCE_S)
    return workspace.read(path) == before


def _forget_older(workspace: Workspace, folder: str, newest: int) -> None:
    """Delete the files of earlier leases; the newest number stays, so that numbers only grow."""
    delete_below(workspace, [entry.path for entry in workspace.list(folder)], newest + 1)
