"""Reading without a lease, beside a compaction that deletes what it has replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from embedmill.errors import DamagedFileError

T = TypeVar("T")
# A shard is folded again only after many more segments.
_TRIES = 3


def undisturbed(look: Callable[[], T]) -> T:
    """Do what lists segments and reads them; begin anew when a file is missing by then.

    Args:
        look: lists and reads; changes nothing.

    Raises:
        DamagedFileError: every time, so that it is no compaction's doing.
    """
    for _ in range(_TRIES - 1):
        try:
            return look()
        except DamagedFileError:
            continue
    return look()
