"""A segment's rows as records of a store: ids, vectors, payloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa

from embedmill.document import record_id
from embedmill.payload import Payload
from embedmill.vector_layer import SUPERSEDED, SegmentVectors
from embedmill.vector_store import VectorBatch

# What records are made of; the other columns of a row need not be read for them.
DOC_COLUMNS = ("doc_id", "uri", "metadata", "chunk_count", "previous_chunk_count")
CHUNK_COLUMNS = ("doc_row", "chunk_index", "text", "start", "end", "headings", "truncated")


class SegmentRecords:
    """A segment's rows as records of a store."""

    def __init__(self, docs: pa.Table, chunks: pa.Table, vectors: SegmentVectors) -> None:
        """Take the rows apart.

        Args:
            docs: at least ``DOC_COLUMNS``.
            chunks: at least ``CHUNK_COLUMNS``.
            vectors: row for row with the chunks.
        """
        self._vectors = vectors
        self._doc_ids: list[str] = docs.column("doc_id").to_pylist()
        self._uris: list[str] = docs.column("uri").to_pylist()
        self._metadata = [orjson.loads(text) for text in docs.column("metadata").to_pylist()]
        self._counts: list[int] = docs.column("chunk_count").to_pylist()
        self._before: list[int] = docs.column("previous_chunk_count").to_pylist()
        self._doc_rows: list[int] = chunks.column("doc_row").to_pylist()
        self._indexes: list[int] = chunks.column("chunk_index").to_pylist()
        self._texts: list[str] = chunks.column("text").to_pylist()
        self._starts: list[int] = chunks.column("start").to_pylist()
        self._ends: list[int] = chunks.column("end").to_pylist()
        self._headings: list[list[str]] = chunks.column("headings").to_pylist()
        self._truncated: list[bool] = chunks.column("truncated").to_pylist()
        # Documents that lack the vector of a chunk; readers can tell by the payload.
        self._partial = {self._doc_rows[row] for row in vectors.failures}
        # Documents that a later segment has again, with rows that got no vector for that. They are
        # let be as a whole, as they stood before: half of a version is none.
        self._superseded = {
            self._doc_rows[row] for row in np.flatnonzero(vectors.origin == SUPERSEDED)
        }

    def place(self, row: int) -> tuple[int, int]:
        """(doc_row, chunk_index) of a chunk row."""
        return self._doc_rows[row], self._indexes[row]

    def with_vectors(self) -> list[int]:
        """The chunk rows that have a vector, those of superseded documents left out."""
        good: list[int] = np.flatnonzero(~self._vectors.absent).tolist()
        if not self._superseded:
            return good
        return [row for row in good if self._doc_rows[row] not in self._superseded]

    def superseded(self) -> list[int]:
        """The chunk rows of documents that a later segment has again."""
        if not self._superseded:
            return []
        return [row for row, doc in enumerate(self._doc_rows) if doc in self._superseded]

    def of_documents(self, doc_rows: Collection[int]) -> list[int]:
        """The chunk rows of some documents that have a vector."""
        return [row for row in self.with_vectors() if self._doc_rows[row] in doc_rows]

    def batch(self, rows: Sequence[int]) -> VectorBatch:
        """Records of the given chunk rows, which ascend."""
        neighbours = bool(rows) and rows[-1] - rows[0] + 1 == len(rows)
        taken = slice(rows[0], rows[-1] + 1) if neighbours else list(rows)
        return VectorBatch(
            ids=[self._id(row) for row in rows],
            # Neighbours are not copied.
            vectors=self._vectors.vectors[taken],
            payloads=[self._payload(row) for row in rows],
        )

    def partial_documents(self, lost: Collection[int]) -> int:
        """Documents that have records for some, but not for all of their chunks."""
        losses = Counter(self._doc_rows[row] for row in lost)
        return sum(0 < count < self._counts[doc] for doc, count in losses.items())

    def _id(self, row: int) -> UUID:
        return record_id(self._doc_ids[self._doc_rows[row]], self._indexes[row])

    def _payload(self, row: int) -> Payload:
        doc = self._doc_rows[row]
        payload: Payload = {
            "doc_id": self._doc_ids[doc],
            "chunk_index": self._indexes[row],
            "text": self._texts[row],
            "start": self._starts[row],
            "end": self._ends[row],
            "headings": self._headings[row],
            "uri": self._uris[doc],
            "metadata": self._metadata[doc],
        }
        if self._truncated[row]:
            payload["truncated"] = True
        if doc in self._partial:
            payload["partial"] = True
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
