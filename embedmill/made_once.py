"""Files that are dear to make and the same for every process: made by the first that wants them."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from embedmill.disk_sync import sync_path

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where such files are: ``EMBEDMILL_CACHE``, else ``embedmill`` in the user's cache folder."""
    given = os.environ.get("EMBEDMILL_CACHE")
    if given:
        return Path(given).expanduser()
    user = os.environ.get("XDG_CACHE_HOME")
    if user:
        return Path(user) / "embedmill"
    try:
        return Path.home() / ".cache" / "embedmill"
    except RuntimeError:
        # A container may run as a user that it does not know.
        return _own_temporary()


def made_once(name: str, make: Callable[[Path], None], folder: Path | None = None) -> Path:
    """The folder of this name in the cache; the first process that wants it makes it.

    Others wait meanwhile. Whoever is killed while making it leaves nothing that counts.

    Args:
        name: says all that decides the content; one path component.
        make: fills the folder that it is given; what it raises is raised here.
        folder: of the cache; the user's without it.
    """
    root = _writable(folder or cache_folder())
    final = root / name
    if final.is_dir():
        return final
    with _locked(root / f"{name}.lock"):
        if not final.is_dir():
            # Left by a process that was killed; nobody else is here.
            partial = root / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                make(partial)
                _sync(partial)
                partial.rename(final)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return final


def shared_file(name: str) -> Path:
    """Where a small file of this name is in the cache, whether it is there or not."""
    return _writable(cache_folder()) / name


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file in one step: whoever reads it meanwhile has the old one or the new."""
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _writable(folder: Path) -> Path:
    """The folder, or one among the temporary files where it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _temporary(folder, error)
    return folder if os.access(folder, os.W_OK) else _temporary(folder, None)


def _temporary(folder: Path, error: OSError | None) -> Path:
    log.warning(
        "%s cannot be written to%s: what is made once is kept among the temporary files; set "
        "EMBEDMILL_CACHE",
        folder,
        f" ({error.strerror})" if error else "",
    )
    other = _own_temporary()
    other.mkdir(mode=0o700, exist_ok=True)
    if other.stat().st_uid != os.getuid():
        # Somebody else's, who could put another model there.
        return Path(tempfile.mkdtemp(prefix="embedmill-cache-"))
    return other


def _sync(folder: Path) -> None:
    """Have the files on disk before the folder has its name, whatever happens to the power."""
    for path in folder.iterdir():
        sync_path(path)


def _own_temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"embedmill-cache-{os.getuid()}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process; its file stays, as others may wait on it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
