"""Qdrant's embedded engine: how a collection is made, what it raises, how its log is synced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import qdrant_edge

from embedmill.errors import EmbedmillError, PermanentError
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.store_folder import DISK_ERRNOS, disk_error, sync_tree


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
    "embedmill audit --repair fills another from the workspace, nothing is embedded for it"
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


def sync_log(folder: Path) -> None:
    """Make what the engine has logged survive a loss of power."""
    # A thread of the engine makes and renames log files: look again until none vanished on the
    # way. It does so once per 32 MiB, so that a second look finds them all.
    for _ in range(10):
        try:
            sync_tree(folder)
        except FileNotFoundError:
            continue
        return
    sync_tree(folder)
