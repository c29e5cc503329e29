"""How many records the documents of a segment have in a collection before it is applied."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from embedmill.applied_layer import AppliedLayer
from embedmill.segment import ChunkLayer, SegmentKey


class StandingRecords:
    """Counts the records of documents by what was recorded when these were applied."""

    def __init__(self, chunk_layer: ChunkLayer, applied_layer: AppliedLayer) -> None:
        """Hold the layers.

        Args:
            chunk_layer: of the index.
            applied_layer: of the collection.
        """
        self._chunks = chunk_layer
        self._applied = applied_layer

    def of_documents(self, shard: int, docs: pa.Table) -> int:
        """Records that the documents of a segment had before it.

        Args:
            shard: of the segment.
            docs: its document rows.
        """
        if not (docs.column("previous_chunk_count").to_numpy() > 0).any():
            return 0
        total = 0
        by_segment: dict[int, list[tuple[bytes, int]]] = {}
        stood = docs.filter(pc.greater(docs.column("previous_chunk_count"), 0))
        for doc_key, number, count in zip(
            stood.column("doc_key").to_pylist(),
            stood.column("previous_segment").to_pylist(),
            stood.column("previous_chunk_count").to_pylist(),
            strict=True,
        ):
            if number >= 0:
                total += count
                by_segment.setdefault(number, []).append((doc_key, count))
        for number, documents in by_segment.items():
            total -= self._lost_before(SegmentKey(shard, number), documents)
        return total

    def _lost_before(self, key: SegmentKey, documents: list[tuple[bytes, int]]) -> int:
        applied = self._applied.read_if_there(key)
        if applied is None:
            # A snapshot in a new collection, which never had what the snapshot replaced.
            return sum(count for _, count in documents)
        rejected = {row for row, _, _ in applied.rejected}
        if not rejected:
            return 0
        docs = self._chunks.docs(key, ("doc_key", "first_chunk"))
        firsts = dict(
            zip(
                docs.column("doc_key").to_pylist(),
                docs.column("first_chunk").to_pylist(),
                strict=True,
            )
        )
        return sum(
            len(rejected.intersection(range(firsts[doc], firsts[doc] + count)))
            for doc, count in documents
        )
