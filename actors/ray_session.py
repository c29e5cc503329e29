"""The connection to Ray: a Ray of this process alone, or a cluster that runs already."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from pathlib import Path

import ray

from embedmill.errors import RefusedError

# Ray tells at every start that its token authentication is on: as it should be, and no news.
_CHATTY = "ray._private.authentication.authentication_token_setup"
# Socket paths may have 107 bytes, of which Ray takes 64; TMPDIR may be too long for that.
_PARENT = Path("/tmp")  # noqa: S108 - mkdtemp makes the folder, for this user alone
_PREFIX = "embedmill-ray-"
# Held by the process that made the folder; a folder without it is not ours.
_LOCK = "in-use"
# Enough for the end of a traceback, or for what a library says before it aborts.
_LAST_LINES, _LAST_WORDS = 5, 2_000
_ANSWER_TIMEOUT_S = 10.0


class RaySession:
    """Connects this process to Ray until it is closed."""

    def __init__(
        self,
        *,
        address: str | None = None,
        object_store_bytes: int = 512 * 2**20,
        cpus: int | None = None,
    ) -> None:
        """Connect.

        Args:
            address: of a cluster; without it the cluster that a Ray job runs in, else a Ray of
                this process alone, which ends with it.
            object_store_bytes: shared memory of a Ray of our own.
            cpus: logical cores of a Ray of our own; the machine's without it.

        Raises:
            RefusedError: there is no cluster at the address.
        """
        self._folder: Path | None = None
        self._lock = -1
        # Ray reads these when it starts; its processes inherit them.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Workers at nice 15, Ray's default, starve beside anything else on the machine.
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        before = signal.getsignal(signal.SIGTERM)
        if address == "local":
            self._start(object_store_bytes, cpus)
        else:
            _join(address)
        if threading.current_thread() is threading.main_thread():
            # Ray's own handler would end this process and its workers in the middle of things.
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)

    def _start(self, object_store_bytes: int, cpus: int | None) -> None:
        logging.getLogger(_CHATTY).setLevel(logging.ERROR)
        remove_abandoned_folders(_PARENT)
        self._folder, self._lock = _new_folder()
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=object_store_bytes,
                include_dashboard=False,
                logging_level=logging.WARNING,
                log_to_driver=False,
                _temp_dir=str(self._folder),
            )
        except BaseException:
            # Stopped, or without room for its shared memory, in the middle of starting.
            self.close()
            raise

    def last_words(self, pid: int) -> str:
        """The end of what a process of a Ray of our own wrote to standard error; else nothing."""
        if self._folder is None:
            return ""
        found = list(self._folder.glob(f"session_latest/logs/worker-*-{pid}.err"))
        if not found:
            return ""
        lines = found[0].read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip())

    def close(self) -> None:
        """Disconnect; a Ray of our own ends, with every process and file of it."""
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None


def _join(address: str) -> None:
    _require_answer(address)
    try:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        raise RefusedError(
            f"no Ray cluster answers at {address}: {first_line}",
            hint="check the address, or leave it out to run on this machine",
        ) from error


def _require_answer(address: str) -> None:
    """Ask for a connection first: Ray tries for minutes, whatever is wrong with an address."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        # "auto": Ray knows where.
        return
    if "://" in address:
        raise RefusedError(
            f"{address} is the address of a Ray client, and a run is not driven through one",
            hint="submit the run as a Ray job: scripts/submit",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise RefusedError(
            f"no Ray cluster answers at {address}: {error}",
            hint="check the address, or leave it out to run on this machine",
        ) from error


def _new_folder() -> tuple[Path, int]:
    """A folder for a Ray, and the lock that says that it is in use."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_PARENT))
    # Locked before it has its name. Not inherited: Ray's processes may outlive this one.
    made = folder / f".{_LOCK}"
    lock = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    made.rename(folder / _LOCK)
    return folder, lock


def remove_abandoned_folders(parent: Path) -> None:
    """Remove what killed runs of this user left: logs, and objects that were spilled to disk."""
    for path in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        # Somebody else's, in use, or being removed by another process.
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
