"""Packing rows under several limits at once, and finding the one row that a call chokes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embedmill.errors import PermanentError


@dataclass(frozen=True, slots=True)
class Pack:
    """Neighbouring rows for one call.

    Attributes:
        rows: their numbers; never empty.
        over: name of the limit that this one row exceeds all by itself; empty for a good pack. What
            to do with such a row is the caller's to say; sending it is pointless.
    """

    rows: range
    over: str = ""


def pack(
    count: int,
    *,
    most_rows: int,
    sizes: Mapping[str, Sequence[int]] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Iterator[Pack]:
    """Cut rows ``0..count-1`` into packs: each row in exactly one, in order.

    Each pack is as full as it can be without looking ahead.

    Args:
        count: of rows.
        most_rows: in one pack, at least 1.
        sizes: by name of the limit, a size of every row (``bytes``, ``tokens``); none negative.
        limits: by the same names, the largest sum in one pack.

    Raises:
        ValueError: sizes and limits do not have the same names, or a size is missing.
    """
    sizes, limits = sizes or {}, limits or {}
    if sizes.keys() != limits.keys() or any(len(column) != count for column in sizes.values()):
        raise ValueError("every limit needs a size of every row")
    if most_rows < 1:
        raise ValueError(f"a pack holds at least one row, not {most_rows}")
    # What all rows before a row add up to; exact, and searched instead of walked.
    totals = [
        (name, np.concatenate(([0], np.cumsum(sizes[name], dtype=np.int64))), limits[name])
        for name in sizes
    ]
    return _packs(count, most_rows, totals)


def by_halves(
    rows: Sequence[int], call: Callable[[Sequence[int]], None]
) -> dict[int, PermanentError]:
    """Make a call with rows; when it is refused as a whole, halve until the bad rows stand alone.

    Every row but the refused ones was part of exactly one call that succeeded, in order. One bad
    row among n costs about 2 log2(n) calls.

    Args:
        rows: row numbers, passed on to ``call`` in slices.
        call: raises PermanentError when it did not take these rows; repeating it must be safe,
            since a refused call may have taken some. Any other error passes through.

    Returns:
        What was said about each row that was refused alone.
    """
    if not rows:
        return {}
    try:
        call(rows)
    except PermanentError as error:
        if len(rows) == 1:
            return {rows[0]: error}
        middle = len(rows) // 2
        return by_halves(rows[:middle], call) | by_halves(rows[middle:], call)
    return {}


def _packs(
    count: int, most_rows: int, totals: Sequence[tuple[str, npt.NDArray[np.int64], int]]
) -> Iterator[Pack]:
    start = 0
    while start < count:
        ends = {"": min(count, start + most_rows)}
        for name, before, limit in totals:
            # The last end at which the sum since start is within the limit.
            ends[name] = int(np.searchsorted(before, before[start] + limit, side="right")) - 1
        tightest = min(ends, key=lambda name: ends[name])
        end = ends[tightest]
        yield Pack(range(start, max(end, start + 1)), over=tightest if end == start else "")
        start = max(end, start + 1)
