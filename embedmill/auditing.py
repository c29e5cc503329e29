"""The audit: does the store hold what the ledger says, record by record?

The ledger and the layers say which records must exist and what they must hold. Everything else in
the collection is foreign. Repairing writes from the vectors layer and deletes by id; nothing is
embedded again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import numpy as np

from embedmill.applied_layer import AppliedLayer
from embedmill.document import record_id
from embedmill.errors import DamagedFileError
from embedmill.live_records import LiveRecords
from embedmill.segment import ChunkLayer
from embedmill.vector_layer import VectorLayer
from embedmill.vector_store import VectorBatch, VectorStore

log = logging.getLogger(__name__)
Kind = Literal["missing", "stale", "other-vector", "orphaned", "duplicate", "damaged-file"]
# Records fetched and compared at once; bounds memory.
_AT_ONCE = 512
# What a store may do to a vector of norm 1 (rounding, its own normalisation) stays far below.
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: ``missing``: no record; ``stale``: a record with other content; ``other-vector``: a
            vector that is not the vectors layer's (another recipe, a mix-up); ``orphaned``: a
            record of no document; ``duplicate``: a second record of a chunk under a foreign id;
            ``damaged-file``: a file of the workspace that is not what was committed.
        record: id of the record, None for a file.
        doc_id: of its document, "" when unknown.
        chunk_index: of its chunk, -1 when unknown.
        detail: for a person.
    """

    kind: Kind
    record: UUID | None
    doc_id: str
    chunk_index: int
    detail: str


class Auditor:
    """Audits one index version against its collection. Nobody may write meanwhile."""

    def __init__(
        self,
        chunks: ChunkLayer,
        vectors: VectorLayer,
        applied: AppliedLayer,
        store: VectorStore,
        collection: str,
    ) -> None:
        self._live = LiveRecords(chunks, vectors, applied)
        self._store = store
        self._collection = collection
        self._expected = bytearray()
        self.checked = 0

    def findings(self, *, share: float = 1.0, repair: bool = False) -> Iterator[Finding]:
        """Compare everything; ids always, contents of a share of the records.

        Args:
            share: of the records whose content is compared, chosen by their ids, so that the same
                share is the same sample.
            repair: put right what is found, while it is found.
        """
        for shard in self._live.shards():
            yield from self._shard(shard, share=share, repair=repair)
        yield from self._foreign(repair=repair)

    def _shard(self, shard: int, *, share: float, repair: bool) -> Iterator[Finding]:
        for segment in self._live.segments(shard):
            try:
                expected = self._live.records(segment)
            except DamagedFileError as error:
                yield Finding("damaged-file", None, "", -1, f"{error}; {error.hint}")
                # Its records cannot be compared; foreign they are not.
                self._expected += b"".join(record.bytes for record in self._live.ids(segment))
                continue
            for start in range(0, len(expected.ids), _AT_ONCE):
                rows = range(start, min(start + _AT_ONCE, len(expected.ids)))
                yield from self._compare(expected.take(rows), share=share, repair=repair)

    def _compare(self, expected: VectorBatch, *, share: float, repair: bool) -> Iterator[Finding]:
        self._expected += b"".join(record.bytes for record in expected.ids)
        found = self._store.fetch(self._collection, expected.ids)
        stored = {record: row for row, record in enumerate(found.ids)}
        wrong = []
        for row, record in enumerate(expected.ids):
            self.checked += 1
            finding = self._compared(expected, row, found, stored.get(record), share)
            if finding is not None:
                wrong.append(row)
                yield finding
        if wrong and repair:
            self._repair(expected.take(wrong))

    def _repair(self, records: VectorBatch) -> None:
        for rejection in self._store.upsert(self._collection, records):
            # It stays missing, and the next audit says so; why it does is known only now.
            log.warning(
                "the store does not take record %s: %s: %s",
                records.ids[rejection.row],
                rejection.code,
                rejection.message,
            )

    def _compared(
        self,
        expected: VectorBatch,
        row: int,
        found: VectorBatch,
        at: int | None,
        share: float,
    ) -> Finding | None:
        record, payload = expected.ids[row], expected.payloads[row]
        doc_id, index = payload["doc_id"], payload["chunk_index"]
        if at is None:
            return Finding("missing", record, doc_id, index, "the store has no such record")
        if int.from_bytes(record.bytes[:4], "big") >= share * 2**32:
            return None
        if found.payloads[at] != payload:
            keys = _differing(payload, found.payloads[at])
            return Finding("stale", record, doc_id, index, f"other content in: {', '.join(keys)}")
        distance = float(np.abs(found.vectors[at] - expected.vectors[row]).max())
        if not distance <= _TOLERANCE:
            return Finding(
                "other-vector", record, doc_id, index, f"differs by {distance:.4f} in a dimension"
            )
        return None

    def _foreign(self, *, repair: bool) -> Iterator[Finding]:
        expected = _RecordIds(self._expected)
        batch = [r for r in self._store.ids(self._collection) if r not in expected]
        for start in range(0, len(batch), _AT_ONCE):
            ids = batch[start : start + _AT_ONCE]
            found = self._store.fetch(self._collection, ids)
            for record, payload in zip(found.ids, found.payloads, strict=True):
                yield self._foreign_finding(record, payload, expected)
            if repair:
                self._store.delete(self._collection, ids)

    def _foreign_finding(
        self, record: UUID, payload: Mapping[str, object], expected: _RecordIds
    ) -> Finding:
        doc_id, index = payload.get("doc_id"), payload.get("chunk_index")
        if isinstance(doc_id, str) and isinstance(index, int):
            if record_id(doc_id, index) in expected:
                return Finding(
                    "duplicate", record, doc_id, index, "the chunk has its record under another id"
                )
            return Finding("orphaned", record, doc_id, index, "no such chunk in the ledger")
        return Finding("orphaned", record, "", -1, "a record of something else")


class _RecordIds:
    """A set of record ids, 16 bytes each."""

    def __init__(self, joined: bytearray) -> None:
        halves = np.frombuffer(bytes(joined), dtype=">u8").reshape(-1, 2).astype(np.uint64)
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        self._high = np.ascontiguousarray(halves[order, 0])
        self._low = np.ascontiguousarray(halves[order, 1])

    def __contains__(self, record: UUID) -> bool:
        high, low = divmod(record.int, 1 << 64)
        row = int(self._high.searchsorted(np.uint64(high)))
        while row < len(self._high) and int(self._high[row]) == high:
            if int(self._low[row]) == low:
                return True
            row += 1
        return False


def _differing(expected: Mapping[str, object], found: Mapping[str, object]) -> Sequence[str]:
    keys = sorted({*expected, *found})
    return [key for key in keys if expected.get(key) != found.get(key)]
