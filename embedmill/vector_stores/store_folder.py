"""A folder that holds a store: one owner at a time, collections with their specs, aliases.

::

    <folder>/lock                           who has it, as JSON; held with flock
    <folder>/aliases.json                   replaced as a whole
    <folder>/collections/<name>/spec.json   written last: it makes the collection exist
    <folder>/collections/<name>/records/    the backend's own files
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from embedmill.disk_sync import sync_path
from embedmill.errors import DamagedFileError, IndexLockedError, RefusedError, StopRunError
from embedmill.store_checks import check_name, check_same_spec
from embedmill.vector_store import CollectionSpec

# The disk, not a record, is the reason: full, over quota, file too large, read-only, no rights,
# defective.
DISK_ERRNOS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
    }
)
_DROPPED = ".dropped-"


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn what the operating system says about a folder into an error that says what to do.

    Raises:
        StopRunError: no write can succeed; other errors of the operating system pass through.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRNOS:
            raise
        raise disk_error(folder, os.strerror(error.errno or 0)) from error


def disk_error(folder: Path, reason: str) -> StopRunError:
    """Say that the folder cannot be written, and what helps."""
    return StopRunError(
        f"the store in {folder} cannot be written: {reason}",
        code="disk",
        hint=f"make room or make {folder} writable, then run again: it goes on where it stopped",
    )


def put_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole: after a crash the old or the new content is there."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_path(path.parent)


def sync_tree(folder: Path) -> None:
    """Make a folder with all files and folders in it survive a loss of power.

    What was written through a memory map counts too; files without changes cost a few microseconds.
    """
    for path in folder.rglob("*"):
        sync_path(path)
    sync_path(folder)


def lock_folder(folder: Path) -> int:
    """Take the folder for as long as the returned file descriptor is open.

    The kernel lets go when the holder dies, whatever kills it; nothing needs to be removed by hand.

    Raises:
        IndexLockedError: another process, or another opener in this one, has it.
    """
    # Not emptied by opening: what the holder wrote is what the refusal quotes.
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 4096, 0)
        os.close(descriptor)
        raise _locked(folder, holder) from error
    try:
        write_holder(descriptor, os.getpid())
    except OSError:
        # A full disk: who tries again in this process is not refused for it.
        os.close(descriptor)
        raise
    return descriptor


def write_holder(descriptor: int, pid: int, doing: str = "") -> None:
    """Write into a lock that is held who holds it, for those who are refused.

    Args:
        descriptor: of the lock.
        pid: of the process.
        doing: what it does, when that is not reading and writing.
    """
    about = {
        "pid": pid,
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "doing": doing,
    }
    text = orjson.dumps(about, option=orjson.OPT_APPEND_NEWLINE)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


class StoreFolder:
    """The names and specs in a locked folder; aliases and specs are read once and kept.

    Args:
        path: created when absent.
        kind: of the store; a folder of another kind is refused.

    Raises:
        IndexLockedError: somebody else has the folder.
        RefusedError: a file is in the way.
        StopRunError: it cannot be created or written.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self._kind = kind
        try:
            with disk_errors(path):
                (path / "collections").mkdir(parents=True, exist_ok=True)
                self._lock: int | None = lock_folder(path)
        except (FileExistsError, NotADirectoryError) as error:
            raise RefusedError(f"{path} cannot hold a store: a file is in the way") from error
        try:
            self._aliases = _read_aliases(path / "aliases.json")
            self._specs: dict[str, CollectionSpec] = {}
            for left in (path / "collections").glob(f"{_DROPPED}*"):
                # Dropped already; only the removal of its files was cut short.
                shutil.rmtree(left, ignore_errors=True)
        except BaseException:
            self.close()
            raise

    @property
    def lock(self) -> int:
        """Descriptor of the lock; who inherits it holds the folder as well."""
        self.check_open()
        assert self._lock is not None
        return self._lock

    def say_who(self, pid: int, doing: str = "") -> None:
        """Say who holds the folder now; see :func:`write_holder`."""
        write_holder(self.lock, pid, doing)

    def records_of(self, collection: str) -> Path:
        """The backend's own folder of a collection."""
        return self.path / "collections" / collection / "records"

    def create(self, collection: str, spec: CollectionSpec, fill: Callable[[Path], None]) -> None:
        """Create a collection unless it exists; what a crash left half-made is made anew.

        Args:
            collection: its name.
            spec: written last, so that a collection with a spec is whole.
            fill: makes the backend's files in an empty folder.

        Raises:
            RefusedError: it exists with another spec, or an alias has the name.
        """
        check_name(collection)
        self.check_open()
        if collection in self._aliases:
            raise RefusedError(f"{collection!r} is an alias already")
        if collection in self.collections():
            check_same_spec(collection, self.spec(collection), spec)
            return
        place = self._place(collection)
        with disk_errors(self.path):
            # Without a spec nothing was ever written to it.
            shutil.rmtree(place, ignore_errors=True)
            self.records_of(collection).mkdir(parents=True)
            fill(self.records_of(collection))
            put_file(place / "spec.json", _spec_text(spec, self._kind))
            sync_path(place.parent)

    def spec(self, collection: str) -> CollectionSpec:
        """Spec of a collection.

        Raises:
            RefusedError: there is no such collection, or another kind of store made it.
            DamagedFileError: its spec does not read back.
        """
        self.check_open()
        if collection not in self._specs:
            if not self._exists(collection):
                raise RefusedError(
                    f"there is no collection {collection!r} in {self.path}", code="no-collection"
                )
            self._specs[collection] = _read_spec(self._place(collection) / "spec.json", self._kind)
        return self._specs[collection]

    def resolve(self, name: str) -> str:
        """The collection that a reader means: the alias' target, or the name itself."""
        self.check_open()
        return self._aliases.get(name, name)

    def collections(self) -> list[str]:
        """Names of the collections that exist, sorted."""
        self.check_open()
        names = (place.name for place in (self.path / "collections").iterdir())
        return sorted(name for name in names if self._exists(name))

    def set_alias(self, alias: str, collection: str) -> None:
        """Point ``alias`` at ``collection`` in one step."""
        check_name(alias)
        self.spec(collection)
        if self._exists(alias):
            raise RefusedError(f"{alias!r} is a collection and cannot be an alias")
        aliases = self._aliases | {alias: collection}
        with disk_errors(self.path):
            put_file(self.path / "aliases.json", _indented(aliases))
        self._aliases = aliases

    def alias_target(self, alias: str) -> str | None:
        """The collection that ``alias`` points at, or None."""
        self.check_open()
        return self._aliases.get(alias)

    def check_droppable(self, collection: str) -> None:
        """Refuse to drop what readers use.

        Raises:
            RefusedError: an alias points at it.
        """
        self.check_open()
        holders = sorted(alias for alias, to in self._aliases.items() if to == collection)
        if holders:
            raise RefusedError(
                f"alias {holders[0]!r} points at collection {collection!r}",
                hint="publish another version first",
            )

    def drop(self, collection: str) -> None:
        """Delete a collection with its files, which nobody may have open; absent is no error."""
        check_name(collection)
        self.check_droppable(collection)
        self._specs.pop(collection, None)
        place = self._place(collection)
        dropped = place.with_name(f"{_DROPPED}{collection}")
        with disk_errors(self.path), suppress(FileNotFoundError):
            shutil.rmtree(dropped, ignore_errors=True)
            # Gone in one step; a crash from here on leaves rubbish, not half a collection.
            place.rename(dropped)
            sync_path(place.parent)
            shutil.rmtree(dropped)

    def check_open(self) -> None:
        """Refuse to work without the lock.

        Raises:
            RefusedError: the store was closed.
        """
        if self._lock is None:
            raise RefusedError(f"the store in {self.path} was closed")

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _place(self, collection: str) -> Path:
        return self.path / "collections" / collection

    def _exists(self, collection: str) -> bool:
        return (self._place(collection) / "spec.json").is_file()


def _locked(folder: Path, holder: bytes) -> IndexLockedError:
    try:
        about = orjson.loads(holder)
        who = f"process {about['pid']} on {about['host']} since {about['since']}"
        who += f", {about['doing']}" if about.get("doing") else ""
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # Between taking the lock and writing into it.
        who = "a process that has only just opened it"
    return IndexLockedError(
        f"the store in {folder} is in use by {who}; it takes one owner at a time",
        hint="wait until that process has ended, or end it; the lock goes with it",
    )


def _indented(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _spec_text(spec: CollectionSpec, kind: str) -> bytes:
    return _indented({"store": kind, **asdict(spec)})


def _read_json(path: Path, remedy: str) -> Any:  # noqa: ANN401 (whatever the file holds)
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise DamagedFileError(f"{path} is not JSON: {error}", hint=remedy) from error


def _read_aliases(path: Path) -> dict[str, str]:
    remedy = (
        "delete it and run embedmill publish -c SETTINGS: it points the alias of its index again"
    )
    return dict(_read_json(path, remedy)) if path.exists() else {}


def _read_spec(path: Path, kind: str) -> CollectionSpec:
    remedy = (
        f"move {path.parent} away; embedmill audit --repair -c SETTINGS fills another from the "
        "workspace, nothing is embedded for it"
    )
    record = _read_json(path, remedy)
    try:
        made_by = record.pop("store")
        spec = CollectionSpec(**record)
    except (TypeError, KeyError, AttributeError) as error:
        raise DamagedFileError(
            f"{path} does not describe a collection: {error}", hint=remedy
        ) from error
    if made_by != kind:
        raise RefusedError(
            f"{path.parent} was made by the store {made_by!r}, not {kind!r}",
            hint=f"give store.path another folder, or store.kind {made_by!r}",
        )
    return spec
