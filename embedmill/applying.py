"""Applying, one segment to one collection: upsert, confirm, delete stale, commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa

from embedmill.counts import RecordCounts
from embedmill.document import record_id
from embedmill.segment import (
    DEAD,
    Applied,
    AppliedLayer,
    ChunkLayer,
    SegmentKey,
    SegmentVectors,
    VectorLayer,
)
from embedmill.vector_store import Payload, VectorBatch, VectorStore

# Payload keys that are ours; the document's own metadata stands under "metadata".
PAYLOAD_KEYS = ("doc_id", "chunk_index", "text", "start", "end", "headings", "uri", "metadata")


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """What one call did.

    Attributes:
        counts: records.
        rejections: by chunk row: (doc_row, chunk_index, code, message); only of the store and the
            check before it, chunks without a vector are not repeated.
    """

    counts: RecordCounts
    rejections: dict[int, tuple[int, int, str, str]]


class SegmentApplier:
    """Applies the segments of a version to its collection, those of one shard in order."""

    def __init__(
        self,
        chunk_layer: ChunkLayer,
        vector_layer: VectorLayer,
        applied_layer: AppliedLayer,
        store: VectorStore,
        collection: str,
        *,
        now: Callable[[], str],
    ) -> None:
        self._chunks = chunk_layer
        self._vectors = vector_layer
        self._applied = applied_layer
        self._store = store
        self._collection = collection
        self._now = now

    def apply(self, key: SegmentKey, previous: int | None) -> ApplyOutcome:
        """Make the collection hold what the segment says, then record it.

        New records are confirmed before stale ones are deleted, so that a document is never
        missing. Doing it again after a crash writes the same records.

        Args:
            key: the segment; every earlier segment of its shard is applied.
            previous: number of the segment applied before it, None for the first.

        Raises:
            TransientError: the same call may succeed later.
            OutcomeUnknownError: the same; ids are stable, so repeating is safe.
            StopRunError: no write can succeed.
        """
        docs = self._chunks.docs(key)
        chunks, digest = self._chunks.chunks(key)
        vectors = self._vectors.read(key, digest)
        segment = _SegmentRecords(docs, chunks, vectors)
        good = np.flatnonzero(vectors.origin != DEAD)
        rejections: dict[int, tuple[str, str]] = {}
        if len(good):
            for rejection in self._store.upsert(self._collection, segment.batch(good)):
                rejections[int(good[rejection.row])] = (rejection.code, rejection.message)
        lost = {**vectors.failures, **rejections}
        stale = segment.stale_ids(set(lost))
        if stale:
            self._store.delete(self._collection, stale)
        before = self._records_without(key.shard, docs, previous)
        applied = Applied(
            upserted=len(good) - len(rejections),
            deleted=len(stale),
            rejected=tuple((row, *lost[row]) for row in sorted(lost)),
            records=before + chunks.num_rows - len(lost),
            time=self._now(),
        )
        self._applied.commit(key, applied)
        counts = RecordCounts(applied.upserted, applied.deleted, len(rejections))
        places = {row: segment.place(row) for row in rejections}
        return ApplyOutcome(counts, {row: (*places[row], *rejections[row]) for row in rejections})

    def _records_without(self, shard: int, docs: pa.Table, previous: int | None) -> int:
        """Records of the shard before this segment, those of its documents not counted."""
        if previous is None:
            # The collection has nothing of this shard yet. A snapshot is the first segment of a
            # new collection although its documents stood elsewhere before.
            return 0
        total = self._applied.read(SegmentKey(shard, previous)).records
        return total - self._records_before(shard, docs)

    def _records_before(self, shard: int, docs: pa.Table) -> int:
        """Records that the documents of a segment had before it."""
        total = 0
        by_segment: dict[int, list[tuple[bytes, int]]] = {}
        for doc_key, number, count in zip(
            docs.column("doc_key").to_pylist(),
            docs.column("previous_segment").to_pylist(),
            docs.column("previous_chunk_count").to_pylist(),
            strict=True,
        ):
            if number >= 0 and count:
                total += count
                by_segment.setdefault(number, []).append((doc_key, count))
        for number, documents in by_segment.items():
            total -= self._lost_before(SegmentKey(shard, number), documents)
        return total

    def _lost_before(self, key: SegmentKey, documents: list[tuple[bytes, int]]) -> int:
        rejected = {row for row, _, _ in self._applied.read(key).rejected}
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


class _SegmentRecords:
    """A segment's rows as records of a store."""

    def __init__(self, docs: pa.Table, chunks: pa.Table, vectors: SegmentVectors) -> None:
        self._vectors = vectors
        self._doc_ids: list[str] = docs.column("doc_id").to_pylist()
        self._uris: list[str] = docs.column("uri").to_pylist()
        self._metadata: list[str] = docs.column("metadata").to_pylist()
        self._counts: list[int] = docs.column("chunk_count").to_pylist()
        self._before: list[int] = docs.column("previous_chunk_count").to_pylist()
        self._doc_rows: list[int] = chunks.column("doc_row").to_pylist()
        self._indexes: list[int] = chunks.column("chunk_index").to_pylist()
        self._texts: list[str] = chunks.column("text").to_pylist()
        self._starts: list[int] = chunks.column("start").to_pylist()
        self._ends: list[int] = chunks.column("end").to_pylist()
        self._headings: list[list[str]] = chunks.column("headings").to_pylist()
        self._truncated: list[bool] = chunks.column("truncated").to_pylist()

    def place(self, row: int) -> tuple[int, int]:
        """(doc_row, chunk_index) of a chunk row."""
        return self._doc_rows[row], self._indexes[row]

    def batch(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> VectorBatch:
        """Records of the given chunk rows, in that order."""
        parsed = [orjson.loads(text) for text in self._metadata]
        wanted = rows.tolist()
        return VectorBatch(
            ids=[self._id(row) for row in wanted],
            vectors=self._vectors.vectors[rows],
            payloads=[self._payload(row, parsed[self._doc_rows[row]]) for row in wanted],
        )

    def _id(self, row: int) -> UUID:
        return record_id(self._doc_ids[self._doc_rows[row]], self._indexes[row])

    def _payload(self, row: int, metadata: dict[str, object]) -> Payload:
        doc = self._doc_rows[row]
        payload: Payload = {
            "doc_id": self._doc_ids[doc],
            "chunk_index": self._indexes[row],
            "text": self._texts[row],
            "start": self._starts[row],
            "end": self._ends[row],
            "headings": self._headings[row],
            "uri": self._uris[doc],
            "metadata": metadata,
        }
        if self._truncated[row]:
            payload["truncated"] = True
        return payload

    def stale_ids(self, lost: set[int]) -> list[UUID]:
        """Ids that an earlier version of these documents may have left in the store."""
        stale = [
            record_id(doc_id, index)
            for doc_id, count, before in zip(self._doc_ids, self._counts, self._before, strict=True)
            for index in range(count, before)
        ]
        # A chunk without a record must not be answered by its predecessor.
        stale += [
            self._id(row)
            for row in sorted(lost)
            if self._indexes[row] < self._before[self._doc_rows[row]]
        ]
        return stale
