"""What stored segments say: equal texts are embedded once; in a rebuild, superseded ones never."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, cast

from actors.shard_worker import StoredTexts
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan, TextIndex
from pipelines.dispatcher import Address, Dispatcher
from pipelines.scan import SHARD

# Chunk files read in one call: it stays far below its deadline.
_AT_ONCE = 64
# Of a segment: rows whose text an earlier one has, and document rows that are superseded by now.
Known: TypeAlias = tuple[Sequence[Loan], frozenset[int]]
NOTHING: Known = ((), frozenset())
# Numbers of segments by shard, ascending.
Committed: TypeAlias = Mapping[int, Sequence[int]]
NOWHERE: Mapping[int, int] = MappingProxyType({})


class Survey:
    """Has the shard workers read the hashes of stored texts; holds 16 bytes a chunk.

    Attributes:
        chunks: whose texts were read.
    """

    def __init__(self, dispatcher: Dispatcher, shard_workers: int, texts: TextIndex) -> None:
        self._dispatcher = dispatcher
        self._workers = shard_workers
        self._texts = texts
        self._loans: dict[SegmentKey, Sequence[Loan]] = {}
        self._stale: dict[SegmentKey, frozenset[int]] = {}
        self.chunks = 0

    def read(self, committed: Committed, after: Mapping[int, int] = NOWHERE) -> None:
        """Learn all about segments, in the order in which they will be embedded.

        Args:
            committed: their numbers, by shard.
            after: by shard, the last number that is left out.
        """
        for worker, keys in self._calls(committed, after):
            stored = self._dispatcher.ask(worker, "stored_texts", keys)
            for key, found in zip(keys, cast(list[StoredTexts], stored), strict=True):
                # What is superseded gets no vector, and has none to lend.
                hashes, rows = found.hashes, found.live
                if rows is not None:
                    hashes = b"".join(hashes[16 * row : 16 * row + 16] for row in rows)
                    self._stale[key] = found.stale
                self._learn(key, hashes, None if rows is None else rows.tolist())

    def read_texts(self, committed: Committed, after: Mapping[int, int]) -> None:
        """Learn the texts of segments alone; see :meth:`read`.

        For what an earlier run has left just now: little of it is superseded, and no ledger is
        folded to find out.
        """
        for worker, keys in self._calls(committed, after):
            hashes = self._dispatcher.ask(worker, "text_hashes", keys)
            for key, found in zip(keys, cast(list[bytes], hashes), strict=True):
                self._learn(key, found, None)

    def _calls(
        self, committed: Committed, after: Mapping[int, int]
    ) -> Iterator[tuple[Address, Sequence[SegmentKey]]]:
        for shard, numbers in sorted(committed.items()):
            new = [SegmentKey(shard, n) for n in numbers if n > after.get(shard, -1)]
            for start in range(0, len(new), _AT_ONCE):
                yield (SHARD, shard % self._workers), tuple(new[start : start + _AT_ONCE])

    def _learn(self, key: SegmentKey, hashes: bytes, rows: Sequence[int] | None) -> None:
        self.chunks += len(hashes) // 16
        loans = self._texts.add(key, hashes, rows)
        if loans:
            self._loans[key] = loans

    def of(self, key: SegmentKey) -> Known:
        """What is known of a segment; asked for once."""
        return self._loans.pop(key, ()), self._stale.pop(key, frozenset())
