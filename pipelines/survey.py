"""What stored segments say: in a rebuild equal texts are embedded once, superseded ones never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from actors.shard_worker import StoredTexts
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan, TextIndex
from pipelines.dispatcher import Dispatcher
from pipelines.scan import SHARD

# Chunk files read in one call: it stays far below its deadline.
_AT_ONCE = 64
# Of a segment: rows whose text an earlier one has, and document rows that are superseded by now.
Known: TypeAlias = tuple[Sequence[Loan], frozenset[int]]
NOTHING: Known = ((), frozenset())


class Survey:
    """Has the shard workers read the hashes of stored texts; holds 16 bytes a chunk."""

    def __init__(self, dispatcher: Dispatcher, shard_workers: int, texts: TextIndex) -> None:
        self._dispatcher = dispatcher
        self._workers = shard_workers
        self._texts = texts
        self._loans: dict[SegmentKey, Sequence[Loan]] = {}
        self._stale: dict[SegmentKey, frozenset[int]] = {}

    def read(self, keys: Sequence[SegmentKey]) -> None:
        """Learn the texts of segments, in the order in which they will be embedded."""
        by_shard: dict[int, list[SegmentKey]] = {}
        for key in keys:
            by_shard.setdefault(key.shard, []).append(key)
        for shard, mine in by_shard.items():
            for start in range(0, len(mine), _AT_ONCE):
                self._read(shard, mine[start : start + _AT_ONCE])

    def _read(self, shard: int, keys: Sequence[SegmentKey]) -> None:
        worker = (SHARD, shard % self._workers)
        stored = self._dispatcher.ask(worker, "stored_texts", tuple(keys))
        for key, found in zip(keys, cast(list[StoredTexts], stored), strict=True):
            # What is superseded gets no vector, and has none to lend.
            hashes, rows = found.hashes, found.live
            if rows is not None:
                hashes = b"".join(hashes[16 * row : 16 * row + 16] for row in rows)
                self._stale[key] = found.stale
            loans = self._texts.add(key, hashes, None if rows is None else rows.tolist())
            if loans:
                self._loans[key] = loans

    def of(self, key: SegmentKey) -> Known:
        """What is known of a segment; asked for once."""
        return self._loans.pop(key, ()), self._stale.pop(key, frozenset())
