"""Which chunk of a run had a text first, so that equal texts are embedded once.

Sixteen bytes a chunk: the first 8 bytes of the text's hash, sorted, and where the chunk stands.
Two different texts may share them (odds of 2**-64 a pair): whoever takes a vector compares whole
hashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embedmill.segment import SegmentKey

_U64 = npt.NDArray[np.uint64]
# Below this many entries a merge costs less than another level of look-ups.
_SMALL = 65_536


@dataclass(frozen=True, slots=True)
class Loan:
    """A chunk row of one segment that may take the vector of a row of another."""

    row: int
    source: SegmentKey
    source_row: int


class TextIndex:
    """First places of texts. Segments are added in the order in which they were committed."""

    def __init__(self) -> None:
        self._hashes: _U64 = np.empty(0, np.uint64)
        self._places: _U64 = np.empty(0, np.uint64)
        self._recent: list[tuple[_U64, _U64]] = []
        self._recent_size = 0
        self._segments: list[SegmentKey] = []

    def __len__(self) -> int:
        """Number of different texts."""
        return len(self._hashes) + self._recent_size

    def add(self, key: SegmentKey, hashes: bytes, rows: Sequence[int] | None = None) -> list[Loan]:
        """Add the chunks of a segment.

        Args:
            key: the segment.
            hashes: 16 bytes for each chunk, in the order of its rows.
            rows: where these chunks stand; all rows of the segment without it.

        Returns:
            The rows whose text an earlier segment of this run has.
        """
        prefixes = np.frombuffer(hashes, dtype=">u8").reshape(-1, 2)[:, 0].astype(np.uint64)
        numbers = np.arange(len(prefixes)) if rows is None else np.asarray(rows, np.int64)
        known = self._find(prefixes)
        segment = len(self._segments)
        self._segments.append(key)
        new, first = np.unique(prefixes, return_index=True)
        fresh = np.asarray([int(row) not in known for row in first], dtype=bool)
        if fresh.any():
            places = (np.uint64(segment) << np.uint64(20)) | numbers[first[fresh]].astype(np.uint64)
            self._recent.append((new[fresh], places))
            self._recent_size += int(fresh.sum())
            self._merge_when_large()
        return [
            Loan(int(numbers[row]), self._segments[place >> 20], place & 0xFFFFF)
            for row, place in sorted(known.items())
        ]

    def _find(self, prefixes: _U64) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for hashes, places in [(self._hashes, self._places), *self._recent]:
            if len(hashes):
                at = np.minimum(np.searchsorted(hashes, prefixes), len(hashes) - 1)
                for row in np.flatnonzero(hashes[at] == prefixes):
                    found[int(row)] = int(places[at[row]])
        return found

    def _merge_when_large(self) -> None:
        # Few levels keep look-ups cheap; merging the recent ones first keeps merging cheap.
        if self._recent_size > max(_SMALL, len(self._hashes) // 8):
            self._hashes, self._places = _merged([(self._hashes, self._places), *self._recent])
            self._recent, self._recent_size = [], 0
        elif len(self._recent) >= 16:
            self._recent = [_merged(self._recent)]


def _merged(levels: list[tuple[_U64, _U64]]) -> tuple[_U64, _U64]:
    hashes = np.concatenate([level[0] for level in levels])
    places = np.concatenate([level[1] for level in levels])
    order = np.argsort(hashes, kind="stable")
    return hashes[order], places[order]
