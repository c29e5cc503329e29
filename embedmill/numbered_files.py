"""Names of numbered files: ``s<shard>/<number>`` and an ending, in every layer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from embedmill.workspace import Workspace


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
