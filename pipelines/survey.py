"""What stored segments say, so that their equal texts are embedded once in a rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from embedmill.segment import SegmentKey
from embedmill.text_index import Loan, TextIndex
from pipelines.dispatcher import Dispatcher
from pipelines.scan import SHARD

# Chunk files read in one call: it stays far below its deadline.
_AT_ONCE = 64


class Survey:
    """Has the shard workers read the hashes of stored texts; holds 16 bytes a chunk."""

    def __init__(self, dispatcher: Dispatcher, shard_workers: int, texts: TextIndex) -> None:
        self._dispatcher = dispatcher
        self._workers = shard_workers
        self._texts = texts
        self._loans: dict[SegmentKey, Sequence[Loan]] = {}

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
        hashes = self._dispatcher.ask(worker, "text_hashes", tuple(keys))
        for key, some in zip(keys, cast(list[bytes], hashes), strict=True):
            loans = self._texts.add(key, some)
            if loans:
                self._loans[key] = loans

    def loans(self, key: SegmentKey) -> Sequence[Loan]:
        """Rows of a segment whose text an earlier one has; asked for once."""
        return self._loans.pop(key, ())
