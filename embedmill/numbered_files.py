"""Names of numbered files: ``s<shard>/<number>`` and an ending, in every layer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from embedmill.workspace import Workspace


class NumberedFiles:
    """One file for each segment, under a folder."""

    def __init__(self, workspace: Workspace, folder: str, ending: str) -> None:
        """Name them.

        Args:
            workspace: that holds them.
            folder: above the shards' folders.
            ending: of their names, with the dot.
        """
        self._workspace = workspace
        self._folder = folder
        self._ending = ending

    def committed(self) -> dict[int, list[int]]:
        """Numbers of the segments that have a file, by shard, ascending."""
        return numbers_in(self._paths(""), re.escape(self._ending))

    def committed_of(self, shard: int) -> list[int]:
        """Numbers of the segments of one shard that have a file, ascending."""
        paths = self._paths(f"/s{shard:04d}")
        return numbers_in(paths, re.escape(self._ending)).get(shard, [])

    def delete(self, keys: Iterable[object]) -> None:
        """Delete the files of segments, in order."""
        self._workspace.delete([self._path(key) for key in keys])

    def delete_below(self, shard: int, number: int) -> None:
        """Delete the files of segments that a snapshot replaced."""
        delete_below(self._workspace, self._paths(f"/s{shard:04d}"), number)

    def _paths(self, below: str) -> list[str]:
        return [entry.path for entry in self._workspace.list(f"{self._folder}{below}")]

    def _path(self, key: object) -> str:
        return f"{self._folder}/{key}{self._ending}"


def numbers_in(paths: Iterable[str], ending: str) -> dict[int, list[int]]:
    """Segment numbers by shard, ascending, of the files with this ending."""
    pattern = re.compile(rf"(?:^|/)s(\d{{4,}})/(\d{{8}}){ending}$")
    found: dict[int, list[int]] = {}
    for path in paths:
        match = pattern.search(path)
        if match:
            found.setdefault(int(match.group(1)), []).append(int(match.group(2)))
    return {shard: sorted(numbers) for shard, numbers in found.items()}


def delete_below(workspace: Workspace, paths: Iterable[str], number: int) -> None:
    """Delete those files whose name begins with a smaller number than this, in order."""
    names = ((re.match(r"\d{8}(?=\.)", path.rsplit("/", 1)[-1]), path) for path in paths)
    workspace.delete(sorted(path for name, path in names if name and int(name[0]) < number))
