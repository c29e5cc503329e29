"""Where texts of a document's earlier version stand, so that their vectors can be taken over."""

from __future__ import annotations

from collections.abc import Sequence

from embedmill.ledger import LedgerEntry
from embedmill.segment import ChunkLayer, SegmentKey, digests_in

# Segments whose hashes are kept: about 50 kB each.
_KEPT = 16
_NOWHERE = (-1, -1)


class EarlierChunks:
    """Looks texts of changed documents up in the segments of one shard."""

    def __init__(self, layer: ChunkLayer, shard: int) -> None:
        self._layer = layer
        self._shard = shard
        self._segments: dict[int, tuple[dict[str, int], list[bytes]]] = {}

    def places_of(
        self, doc_id: str, entry: LedgerEntry | None, hashes: Sequence[bytes]
    ) -> list[tuple[int, int]]:
        """Segment and row of each text in the document's earlier version; (-1, -1): not in it.

        Args:
            doc_id: of the document.
            entry: where its earlier version stands; None when it has none in a committed segment.
            hashes: of the texts.
        """
        if entry is None or entry.chunk_count == 0:
            return [_NOWHERE] * len(hashes)
        first_chunks, stored = self._segment(entry.segment)
        first = first_chunks[doc_id]
        rows = {stored[row]: row for row in range(first, first + entry.chunk_count)}
        return [(entry.segment, rows[h]) if h in rows else _NOWHERE for h in hashes]

    def _segment(self, number: int) -> tuple[dict[str, int], list[bytes]]:
        """First chunk row by document, and the text hashes; of the segments looked at lately."""
        if number not in self._segments:
            if len(self._segments) >= _KEPT:
                self._segments.pop(next(iter(self._segments)))
            key = SegmentKey(self._shard, number)
            docs, chunks, _ = self._layer.rows(key, ("text_hash",), ("doc_id", "first_chunk"))
            firsts = docs.column("first_chunk").to_pylist()
            hashes = digests_in(chunks.column("text_hash"))
            names = docs.column("doc_id").to_pylist()
            self._segments[number] = dict(zip(names, firsts, strict=True)), hashes
        return self._segments[number]
