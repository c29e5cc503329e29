"""Qdrant's embedded engine: how a collection is made, what it raises, how its log is synced."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import qdrant_edge

from embedmill.disk_sync import sync_path
from embedmill.errors import EmbedmillError, PermanentError
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.store_folder import DISK_ERRNOS, disk_error


def config_of(
    spec: CollectionSpec, *, index_from_kilobytes: int | None = None
) -> qdrant_edge.EdgeConfig:
    """What the engine is to make, and from which size on it indexes a part when it is asked to."""
    distances = {
        "cosine": qdrant_edge.Distance.Cosine,
        "dot": qdrant_edge.Distance.Dot,
        "euclid": qdrant_edge.Distance.Euclid,
    }
    params = qdrant_edge.EdgeVectorParams(size=spec.dimension, distance=distances[spec.metric])
    # Without the log everything since the last flush is lost with the process, and two
    # processes can write to one folder without noticing.
    optimizers = qdrant_edge.EdgeOptimizersConfig(indexing_threshold=index_from_kilobytes)
    return qdrant_edge.EdgeConfig(vectors=params, wal_enabled=True, optimizers=optimizers)


# Whatever the engine cannot do any more with a collection: all that was in it is elsewhere.
_MADE_AGAIN = (
    "if its files are damaged: move the collection's folder in {folder}/collections away; "
    "embedmill audit --repair -c SETTINGS fills another from the workspace, nothing is embedded "
    "for it"
)


@contextmanager
def engine_errors(folder: Path, otherwise: type[EmbedmillError]) -> Iterator[None]:
    """Name what the engine raises: about the disk, or what the caller expects ``otherwise``.

    Raises:
        StopRunError: the text speaks of a full, read-only or defective disk.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        # Long texts quote the whole call stack of the conversion, and with it the record.
        short = " ".join(text.split())[:200]
        number = re.search(r"os error (\d+)", text)
        if isinstance(error, OSError) or (number and int(number.group(1)) in DISK_ERRNOS):
            raise disk_error(folder, short) from error
        raise otherwise(
            f"the engine says: {short}",
            code="refused-by-store",
            hint="" if otherwise is PermanentError else _MADE_AGAIN.format(folder=folder),
        ) from error


class EngineLog:
    """The engine's log of one open collection.

    The engine appends to the files ``open-*``, through memory maps that need not show in a file's
    times; a full one becomes ``closed-*``. All others are synced when they have changed: to sync a
    file without changes waits for the disk too, and up to eight closed ones lie there.
    """

    def __init__(self, folder: Path, *, sync: Callable[[Path], None] = sync_path) -> None:
        """Nothing is known to be synced yet.

        Args:
            folder: of the log.
            sync: syncs a file, or a folder.
        """
        self._folder = folder
        self._sync_path = sync
        self._synced: dict[str, tuple[int, int, int]] = {}

    def sync(self) -> None:
        """Make what the engine has logged survive a loss of power."""
        # A thread of the engine makes and renames log files: look again until none vanished on
        # the way. It does so once per 32 MiB, so that a second look finds them all.
        for _ in range(10):
            with suppress(FileNotFoundError):
                self._sync()
                return
        self._sync()

    def _sync(self) -> None:
        there = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                about = entry.stat()
                there[entry.name] = (about.st_ino, about.st_size, about.st_mtime_ns)
        for name, state in there.items():
            if name.startswith("open-") or self._synced.get(name) != state:
                self._sync_path(self._folder / name)
        if _inodes(there) != _inodes(self._synced):
            self._sync_path(self._folder)
        self._synced = there


def _inodes(states: Mapping[str, tuple[int, int, int]]) -> dict[str, int]:
    return {name: inode for name, (inode, _, _) in states.items()}
