"""The workspace: a folder or bucket of immutable files, each put whole and only if absent.

Every durable effect of a run but the store's own goes through this module, so that a test can count
them and crash at each.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError as StoreAlreadyExistsError
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import LocalStore, ObjectStore

from embedmill.disk_sync import sync_path
from embedmill.errors import (
    AlreadyExistsError,
    DamagedFileError,
    StopRunError,
    TransientError,
)
from embedmill.object_store import bucket_error, first_line, lacks_bucket, open_object_store
from embedmill.workspace_settings import WorkspaceSettings

_T = TypeVar("_T")
# Unfinished puts of a local workspace; never listed, and swept by later runs.
STAGING = ".staging"
# A put takes seconds; one that began an hour ago was killed.
ABANDONED_S = 3600.0
# What the system says when no write can succeed until somebody makes room or gives rights.
_NO_WRITE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EFBIG,
    errno.ENOTDIR,
    errno.EISDIR,
}
_READABLE = "see that its disk is there and may be read, then run the same command again"
# What link() says where the file system has no hard links, or a folder of the workspace is on
# another one.
_NO_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a listing: its path in the workspace and its size in bytes."""

    path: str
    size: int


class Workspace(Protocol):
    """Immutable files under ``/``-separated relative paths of ASCII names."""

    url: str

    def create(self, path: str, data: bytes) -> None:
        """Put a file whole under its final name, only if there is none; durable on return.

        Raises:
            AlreadyExistsError: there is a file of this name; it is untouched.
            StopRunError: disk full, read-only, no rights: nothing was written.
            TransientError: the object store did not answer; the file may exist.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Put a file whole, in one step, whatever was there.

        Only for what may be a step behind: heartbeats, the copy of the manifest.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """The content, or None when there is no such file; every other trouble is an error."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file, without reading it; every other trouble is an error."""
        ...

    def list(self, prefix: str) -> Iterator[Entry]:
        """All files under the folder ``prefix``, at any depth, in no order."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; absent ones are no error."""
        ...


def open_workspace(settings: WorkspaceSettings) -> Workspace:
    """Open the workspace that the settings name; a local folder is made when it is missing.

    Raises:
        SettingsError: the address is of no kind that is known.
        StopRunError: the folder cannot be made.
    """
    url = settings.url
    folder = folder_of(url)
    if folder is not None:
        return LocalWorkspace(folder.expanduser())
    return ObjectWorkspace(url, open_object_store(url, settings.access, key="workspace.url"))


def folder_of(url: str) -> Path | None:
    """The folder that a workspace's address means, ``~`` as it stands; None for a bucket."""
    scheme = re.match(r"^([a-z][a-z0-9+.-]*)://", url)
    if scheme is None:
        return Path(url)
    return Path(unquote(urlsplit(url).path)) if scheme.group(1) == "file" else None


class LocalWorkspace:
    """A folder on a local or shared disk; puts are staged, synced and linked under their name."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.url = str(self._root)
        self._staging = self._root / STAGING
        try:
            self._staging.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._no_write(self._root, error) from error
        self._store = LocalStore(self._root)

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Workspace.create`."""
        target = self._root / path
        try:
            staged = self._stage(target, data)
            try:
                # link, unlike rename, refuses a name that is taken.
                os.link(staged, target)
            except OSError as error:
                if error.errno in _NO_LINK:
                    raise self._no_link(target, error) from error
                raise
            finally:
                staged.unlink(missing_ok=True)
            sync_path(target.parent)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{target} exists already") from error
        except OSError as error:
            raise self._no_write(target, error) from error

    def replace(self, path: str, data: bytes) -> None:
        """See :meth:`Workspace.replace`."""
        target = self._root / path
        try:
            self._stage(target, data).replace(target)
            sync_path(target.parent)
        except OSError as error:
            raise self._no_write(target, error) from error

    def _stage(self, target: Path, data: bytes) -> Path:
        _make_folder(target.parent)
        staged = self._staging / secrets.token_hex(8)
        # Nobody edits it; who may read the texts of documents is for the umask to say.
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            staged.unlink(missing_ok=True)
            raise
        return staged

    def read(self, path: str) -> bytes | None:
        """See :meth:`Workspace.read`."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._no_read(path, error) from error

    def exists(self, path: str) -> bool:
        """See :meth:`Workspace.exists`."""
        try:
            (self._root / path).stat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._no_read(path, error) from error
        return True

    def list(self, prefix: str) -> Iterator[Entry]:
        """See :meth:`Workspace.list`."""
        folder = self._root / prefix
        if not folder.is_dir():
            return
        try:
            for batch in obstore.list(self._store, prefix=prefix.rstrip("/")):
                yield from (Entry(meta["path"], meta["size"]) for meta in batch)
        except (BaseError, OSError) as error:
            raise StopRunError(
                f"{folder} cannot be listed: {first_line(error)}",
                code="unreadable",
                hint=_READABLE,
            ) from error

    def delete(self, paths: Sequence[str]) -> None:
        """See :meth:`Workspace.delete`."""
        for path in paths:
            try:
                (self._root / path).unlink(missing_ok=True)
            except OSError as error:
                raise self._no_write(self._root / path, error) from error

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        """Delete what killed runs left unfinished so long ago that no put can still need it.

        Returns:
            How many files that were.
        """
        try:
            with tempfile.NamedTemporaryFile(dir=self._staging) as probe:
                # By the clock of the disk, which may be another machine's.
                now = os.fstat(probe.fileno()).st_mtime
        except OSError:
            # Full or read-only: the next put says so.
            return 0
        swept = 0
        for path in self._staging.iterdir():
            # A put that has just ended.
            with contextlib.suppress(FileNotFoundError):
                if now - path.stat().st_mtime >= older_than_s:
                    path.unlink()
                    swept += 1
        return swept

    def _no_read(self, path: str, error: OSError) -> StopRunError:
        return StopRunError(
            f"{self._root / path} cannot be read: {error.strerror}",
            code="unreadable",
            hint=_READABLE,
        )

    def _no_link(self, target: Path, error: OSError) -> StopRunError:
        return StopRunError(
            f"{target} cannot be written: a hard link from {self._staging} is refused "
            f"({error.strerror})",
            code="no-link",
            hint="the folder of `workspace.url` must be on one file system, and on one that has "
            "hard links (FAT, and some shares of other machines, have none); or use a bucket",
        )

    def _no_write(self, target: Path, error: OSError) -> StopRunError | TransientError:
        message = f"{target} cannot be written: {error.strerror}"
        if error.errno in _NO_WRITE:
            return StopRunError(
                message,
                code="no-space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "no-write",
                hint="make room or give write access, then run the same command again: "
                "all that was committed is kept",
            )
        return TransientError(message, code="io")


class ObjectWorkspace:
    """A prefix of a bucket; create-only puts are conditional puts of the object store."""

    def __init__(self, url: str, store: ObjectStore) -> None:
        self.url = url
        self._store = store

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Workspace.create`."""
        try:
            # Multipart uploads cannot be conditional.
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except (StoreAlreadyExistsError, PreconditionError) as error:
            raise AlreadyExistsError(f"{self.url}/{path} exists already") from error
        except (BaseError, OSError) as error:
            raise self._failed(path, error) from error

    def replace(self, path: str, data: bytes) -> None:
        """See :meth:`Workspace.replace`."""
        try:
            obstore.put(self._store, path, data, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._failed(path, error) from error

    def read(self, path: str) -> bytes | None:
        """See :meth:`Workspace.read`."""
        return self._asked(path, lambda: bytes(obstore.get(self._store, path).bytes()))

    def exists(self, path: str) -> bool:
        """See :meth:`Workspace.exists`."""
        return self._asked(path, lambda: obstore.head(self._store, path)) is not None

    def _asked(self, path: str, ask: Callable[[], _T]) -> _T | None:
        """None: there is no such object."""
        try:
            return ask()
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise self._failed(path, error) from error
            return None
        except (BaseError, OSError) as error:
            raise self._failed(path, error) from error

    def list(self, prefix: str) -> Iterator[Entry]:
        """See :meth:`Workspace.list`."""
        try:
            for batch in obstore.list(self._store, prefix=prefix.rstrip("/")):
                yield from (Entry(meta["path"], meta["size"]) for meta in batch)
        except (BaseError, OSError) as error:
            raise self._failed(prefix, error) from error

    def delete(self, paths: Sequence[str]) -> None:
        """See :meth:`Workspace.delete`."""
        for path in paths:
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                continue
            except (BaseError, OSError) as error:
                raise self._failed(path, error) from error

    def _failed(self, path: str, error: Exception) -> StopRunError | TransientError:
        return bucket_error(self.url, path, error, key="workspace.url")


def create_once(workspace: Workspace, path: str, data: bytes) -> bool:
    """Put a file; finding the very same bytes there is success.

    Covers a reply that was lost (the client's retry finds its own file) and a killed run of the
    same input.

    Returns:
        False when other bytes stand under this name.
    """
    try:
        workspace.create(path, data)
    except AlreadyExistsError:
        return workspace.read(path) == data
    return True


def require(workspace: Workspace, path: str, *, again: str | None = None) -> bytes:
    """Read a file that was committed.

    Args:
        workspace: that has it.
        path: of the file.
        again: what makes the file again once it is gone.

    Raises:
        DamagedFileError: it is not there, or empty.
    """
    data = workspace.read(path)
    if not data:
        state = "is missing" if data is None else "is empty"
        hint = "restore it from a copy of the workspace"
        if again:
            hint = again if data is None else f"delete it and {again}"
        raise DamagedFileError(
            f"{workspace.url}/{path} was committed and {state}",
            hint=hint,
        )
    return data


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; each is on disk before anything is put into it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    # Somebody else may be making it too. A file of that name shows when it is used.
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    sync_path(folder.parent)
