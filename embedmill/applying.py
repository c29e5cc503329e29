"""Applying, one segment to one collection: upsert, confirm, delete stale, commit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from embedmill.applied_layer import Applied, AppliedLayer
from embedmill.counts import RecordCounts
from embedmill.dead_letter import Stage
from embedmill.errors import DamagedFileError, RateLimitedError, ShardOwnedElsewhereError
from embedmill.plain_numbers import number_of
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.segment_records import CHUNK_COLUMNS, DOC_COLUMNS, SegmentRecords
from embedmill.vector_layer import VectorLayer
from embedmill.vector_store import Rejection, VectorBatch

# Document row, chunk index, code, message.
LostChunk = tuple[int, int, str, str]
_SUPERSEDED = ("superseded", "a later segment has the document again")


# What records are made of, and where a document stood before.
_DOC_COLUMNS = (*DOC_COLUMNS, "doc_key", "previous_segment")
# Records of one call: payloads and vectors of a large segment are not all in memory at once, and
# the embedded store syncs its files only so often.
_RECORDS = 4096


class RecordStore(Protocol):
    """What applying asks of a store; see :class:`~embedmill.vector_store.VectorStore`."""

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records, confirmed before it returns."""
        ...

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, confirmed before it returns."""
        ...


@dataclass(slots=True)
class _Unfinished:
    """A segment of which the store has confirmed a part."""

    key: SegmentKey
    done: int = 0
    rejections: dict[int, tuple[str, str]] = field(default_factory=dict)


class SegmentApplier:
    """Applies the segments of a version to its collection, those of one shard in order."""

    def __init__(  # noqa: PLR0913 - one thing less is a bag of things
        self,
        chunk_layer: ChunkLayer,
        vector_layer: VectorLayer,
        applied_layer: AppliedLayer,
        store: RecordStore,
        collection: str,
        *,
        now: Callable[[], str],
        run: str = "",
        bury: Callable[[SegmentKey, Stage, Sequence[LostChunk]], None],
        clock: Callable[[], float] = lambda: 0.0,
        at_most_s: float = math.inf,
    ) -> None:
        """Hold what is needed.

        Args:
            chunk_layer: holds the segments' chunks.
            vector_layer: holds their vectors.
            applied_layer: takes what the store has confirmed.
            store: takes the records.
            collection: of the version.
            now: UTC, ISO 8601.
            run: that applies.
            bury: writes dead letters; called before a segment counts as applied, so that no chunk
                is ever without a record and without a letter.
            clock: monotonic seconds.
            at_most_s: one call goes on for so long; the next call goes on from there.
        """
        self._chunks = chunk_layer
        self._vectors = vector_layer
        self._applied = applied_layer
        self._store = store
        self._collection = collection
        self._now = now
        self._run = run
        self._bury = bury
        self._clock = clock
        self._at_most_s = at_most_s
        self._unfinished: dict[int, _Unfinished] = {}

    def apply(self, key: SegmentKey, previous: int | None) -> RecordCounts:
        """Make the collection hold what the segment says, then record it.

        New records are confirmed before stale ones are deleted, so that a document is never
        missing. Doing it again after a crash writes the same records.

        Args:
            key: the segment; every earlier segment of its shard is applied.
            previous: number of the segment applied before it, None for the first.

        Raises:
            TransientError: the same call may succeed later.
            RateLimitedError: the call has used up its time; the next one goes on from there.
            OutcomeUnknownError: the same; ids are stable, so repeating is safe.
            StopRunError: no write can succeed.
            ShardOwnedElsewhereError: another run has applied it.
        """
        try:
            return self._apply(key, previous)
        except (DamagedFileError, ShardOwnedElsewhereError):
            if self._is_carried_over(key):
                return RecordCounts()
            raise

    def _is_carried_over(self, key: SegmentKey) -> bool:
        """Whether a compaction beside us recorded it: the store has had its records all along."""
        return self._applied.read_if_there(key) is not None and self._chunks.is_copy(key)

    def _apply(self, key: SegmentKey, previous: int | None) -> RecordCounts:
        done = self._applied.read_if_there(key)
        if done is not None and done.run != self._run:
            raise ShardOwnedElsewhereError(
                f"run {done.run} has applied segment {key}: two runs write to this index",
                hint="let the other one end, then run the same command again",
            )
        docs, chunks, digest = self._chunks.rows(key, CHUNK_COLUMNS, _DOC_COLUMNS)
        vectors = self._vectors.read(key, digest)
        segment = SegmentRecords(docs, chunks, vectors)
        good = segment.with_vectors()
        rejections = self._upsert(key, segment, good)
        lost = {**vectors.failures, **rejections}
        superseded = set(segment.superseded())
        # What an earlier version has in their place stays: the later segment writes over it.
        stale = segment.stale_ids(lost.keys() - superseded)
        if stale:
            self._store.delete(self._collection, stale)
        without = sorted(lost.keys() | superseded)
        applied = Applied(
            upserted=len(good) - len(rejections),
            deleted=len(stale),
            rejected=tuple((row, *lost.get(row, _SUPERSEDED)) for row in without),
            records=self._records_without(key.shard, docs, previous)
            + (chunks.num_rows - len(without)),
            time=self._now(),
            run=self._run,
        )
        # The embedder's letters may be missing: a run may have ended right after embedding.
        self._write_letters(key, "embed", segment, vectors.failures)
        self._write_letters(key, "apply", segment, rejections)
        self._commit(key, applied)
        partial = segment.partial_documents(lost)
        return RecordCounts(applied.upserted, applied.deleted, len(rejections), partial)

    def _commit(self, key: SegmentKey, applied: Applied) -> None:
        if not self._applied.commit(key, applied):
            # The other run may be further, and what was just written older than what it wrote.
            raise ShardOwnedElsewhereError(
                f"another run has applied segment {key} meanwhile: two runs write to this index",
                hint="let the other one end, then run: embedmill audit --repair -c SETTINGS",
            )
        self._unfinished.pop(key.shard, None)

    def _upsert(
        self, key: SegmentKey, segment: SegmentRecords, rows: Sequence[int]
    ) -> dict[int, tuple[str, str]]:
        """Write records, some at a time; what was confirmed is not sent again after a failure."""
        known = self._unfinished.get(key.shard)
        if known is None or known.key != key:
            known = self._unfinished[key.shard] = _Unfinished(key)
        until = self._clock() + self._at_most_s
        while known.done < len(rows):
            some = rows[known.done : known.done + _RECORDS]
            for rejection in self._store.upsert(self._collection, segment.batch(some)):
                known.rejections[some[rejection.row]] = (rejection.code, rejection.message)
            known.done += len(some)
            if known.done < len(rows) and self._clock() > until:
                raise RateLimitedError(
                    f"the store is slow: it has {known.done} of the "
                    f"{number_of(len(rows), 'record')} of {key}",
                    code="slow-store",
                )
        return known.rejections

    def _write_letters(
        self,
        key: SegmentKey,
        stage: Stage,
        segment: SegmentRecords,
        failures: Mapping[int, tuple[str, str]],
    ) -> None:
        if failures:
            lost = [(*segment.place(row), *why) for row, why in sorted(failures.items())]
            self._bury(key, stage, lost)

    def _records_without(self, shard: int, docs: pa.Table, previous: int | None) -> int:
        """Records of the shard before this segment, those of its documents not counted."""
        if previous is None:
            # The collection has nothing of this shard yet. A snapshot is the first segment of a
            # new collection although its documents stood elsewhere before.
            return 0
        # Read, though this writer may have recorded it: it is gone when another run has folded it.
        total = self._applied.read(SegmentKey(shard, previous)).records
        return total - self._records_before(shard, docs)

    def _records_before(self, shard: int, docs: pa.Table) -> int:
        """Records that the documents of a segment had before it."""
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
