"""The records of an index version: those of the documents in its ledger, as they stand now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from embedmill.applied_layer import AppliedLayer
from embedmill.document import record_id
from embedmill.ledger import Ledger
from embedmill.segment import ChunkLayer, SegmentKey, digests_in
from embedmill.segment_records import CHUNK_COLUMNS, SegmentRecords
from embedmill.vector_layer import VectorLayer
from embedmill.vector_store import VectorBatch


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A segment that holds documents of the index.

    Attributes:
        key: the segment.
        doc_keys: its documents that no later segment has changed or removed.
    """

    key: SegmentKey
    doc_keys: frozenset[bytes]


class LiveRecords:
    """Reads the records of a version from its layers, segment by segment."""

    def __init__(
        self, chunks: ChunkLayer, vectors: VectorLayer, applied: AppliedLayer | None
    ) -> None:
        """Hold what is needed.

        Args:
            chunks: of the version.
            vectors: of the version.
            applied: says which records a store did not take; they are left out. None: no store was
                asked yet.
        """
        self._chunks = chunks
        self._vectors = vectors
        self._applied = applied

    def shards(self) -> list[int]:
        """Shards that have segments, ascending."""
        return sorted(self._chunks.committed())

    def segments(self, shard: int) -> list[LiveSegment]:
        """Segments of a shard that hold documents of the index, in order; folds its ledger."""
        ledger, _ = Ledger.fold(self._chunks, shard)
        live: dict[int, set[bytes]] = {}
        for doc_key, entry in ledger.entries():
            live.setdefault(entry.segment, set()).add(doc_key)
        return [
            LiveSegment(SegmentKey(shard, number), frozenset(doc_keys))
            for number, doc_keys in sorted(live.items())
        ]

    def records(self, segment: LiveSegment) -> VectorBatch:
        """The records that the documents of a segment have.

        Raises:
            DamagedFileError: a file of the segment is not what was committed.
        """
        docs, chunks, digest = self._chunks.rows(segment.key, CHUNK_COLUMNS)
        records = SegmentRecords(docs, chunks, self._vectors.read(segment.key, digest))
        keys = digests_in(docs.column("doc_key"))
        deleted = docs.column("deleted").to_pylist()
        rows = {row for row, k in enumerate(keys) if k in segment.doc_keys and not deleted[row]}
        refused = self._refused(segment.key)
        return records.batch([row for row in records.of_documents(rows) if row not in refused])

    def _refused(self, key: SegmentKey) -> set[int]:
        if self._applied is None:
            return set()
        return {row for row, _, _ in self._applied.read(key).rejected}

    def ids(self, segment: LiveSegment) -> Iterator[UUID]:
        """Ids of all chunks of the documents of a segment, by its document rows alone."""
        docs = self._chunks.docs(segment.key, ("doc_key", "doc_id", "chunk_count", "deleted"))
        for row in docs.to_pylist():
            if row["doc_key"] in segment.doc_keys and not row["deleted"]:
                for index in range(row["chunk_count"]):
                    yield record_id(row["doc_id"], index)
