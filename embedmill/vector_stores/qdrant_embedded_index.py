"""Building the search index of an embedded collection, in a process of its own.

The engine builds a graph only when it is asked to, takes minutes for 100,000 records, and holds the
interpreter's lock all the while: in the process that owns the store, nothing else would move. So
the owner closes the collection, has a child build the graph, and opens it again. The child inherits
the lock on the folder: should the owner die, nobody can open what the child is still changing.

``python -m embedmill.vector_stores.qdrant_embedded_index RECORDS SPEC KILOBYTES`` is the child.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

import orjson
import qdrant_edge

from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.qdrant_embedded_engine import config_of
from embedmill.vector_stores.store_folder import put_file

_LOOK_AGAIN_S = 0.05
_NOTE = "written-since-index"
_LAST_WORDS = 500


class IndexBuild:
    """One child at work."""

    def __init__(
        self, records: Path, spec: CollectionSpec, threshold_bytes: int, lock: int
    ) -> None:
        """Start.

        Args:
            records: the engine's folder of a collection that nobody has open.
            spec: of the collection.
            threshold_bytes: vectors of a part that is to be indexed.
            lock: descriptor of the lock on the store's folder; the child holds it too.
        """
        kilobytes = str(max(1, threshold_bytes // 1024))
        made_for = orjson.dumps(asdict(spec)).decode()
        command = [sys.executable, "-m", __name__, str(records), made_for, kilobytes]
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        self._child = subprocess.Popen(  # noqa: S603 (ours)
            command, stdout=subprocess.DEVNULL, stderr=self._said, pass_fds=(lock,)
        )

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def wait(
        self, seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> bool:
        """Whether it ends within so many seconds."""
        until = clock() + seconds
        while self._child.poll() is None:
            if clock() >= until:
                return False
            sleep(_LOOK_AGAIN_S)
        return True

    def end(self) -> str:
        """End it, whatever it does; what it said when it failed, else nothing.

        The collection is as usable as after any other death: what was confirmed is in it.
        """
        if self._child.poll() is None:
            self._child.kill()
        status = self._child.wait()
        self._said.seek(0)
        said = " ".join(self._said.read().decode("utf-8", "replace").split())[-_LAST_WORDS:]
        self._said.close()
        return f"it ended with {status}; {said}" if status else ""


def written_since(collection: Path) -> int:
    """Records written since the index of a collection was made, as far as it was noted."""
    try:
        return int((collection / _NOTE).read_text())
    except (FileNotFoundError, ValueError):
        return 0


def note_written(collection: Path, records: int) -> None:
    """Note how many were."""
    put_file(collection / _NOTE, f"{records}\n".encode())


def unindexed(shard: qdrant_edge.EdgeShard) -> int:
    """Records that a search compares with one by one, but for those that were written again.

    Of these the engine counts the old one as indexed, although it is not found any more.
    """
    info = shard.info()
    return int(info.points_count - info.indexed_vectors_count)


def main() -> None:
    """Build the graph of one collection."""
    path, made_for, kilobytes = sys.argv[1:]
    spec = CollectionSpec(**orjson.loads(made_for))
    config = config_of(spec, index_from_kilobytes=int(kilobytes))
    shard = qdrant_edge.EdgeShard.load(path, config)
    shard.optimize()
    shard.flush()
    shard.close()


if __name__ == "__main__":
    main()
