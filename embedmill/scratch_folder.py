"""A local folder for large files that nobody needs once the process has ended, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class ScratchFolder:
    """A folder of this process among the system's temporary files.

    Removed by :meth:`close`; those of processes that were killed are removed by the next one that
    makes a folder with the same prefix. Who lives holds a lock, so that process ids, which another
    container numbers anew, say nothing here.

    Attributes:
        path: of the folder.
    """

    def __init__(self, prefix: str) -> None:
        root = Path(tempfile.gettempdir())
        for left in root.glob(f"{prefix}*"):
            _remove_if_left(left)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_if_left(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        # Gone meanwhile, or another user's.
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Its process lives.
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
