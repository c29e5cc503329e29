"""Applying segments to one collection: upsert, delete stale, confirm, commit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from embedmill.applied_layer import Applied, AppliedLayer
from embedmill.counts import RecordCounts
from embedmill.dead_letter import Stage
from embedmill.errors import (
    DamagedFileError,
    EmbedmillError,
    RateLimitedError,
    ShardOwnedElsewhereError,
)
from embedmill.plain_numbers import number_of
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.segment_records import CHUNK_COLUMNS, DOC_COLUMNS, SegmentRecords
from embedmill.standing_records import StandingRecords
from embedmill.vector_layer import SegmentVectors, VectorLayer
from embedmill.vector_store import Rejection, VectorBatch, confirmed_together

# Document row, chunk index, code, message.
LostChunk = tuple[int, int, str, str]
_SUPERSEDED = ("superseded", "a later segment has the document again")


# What records are made of, and where a document stood before.
_DOC_COLUMNS = (*DOC_COLUMNS, "doc_key", "previous_segment")
# Records of one call: payloads and vectors of a large segment are not all in memory at once, and
# the embedded store syncs its files only so often.
_RECORDS = 4096
# Seconds after which a call begins no further segment: what a crash leaves unconfirmed is written
# again, and a store that is slow enough gains nothing by confirming several at a time.
_TOGETHER_S = 1.0


class RecordStore(Protocol):
    """What applying asks of a store; see :class:`~embedmill.vector_store.VectorStore`.

    It may have ``confirmed_together`` as well; see
    :func:`~embedmill.vector_store.confirmed_together`.
    """

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Write records, confirmed before it returns."""
        ...

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Delete records, confirmed before it returns."""
        ...


@dataclass(frozen=True, slots=True)
class AppliedSegments:
    """What a call did of the segments that it was given.

    Attributes:
        counts: of the first of them, in order; these are applied.
        failure: why the one after these is not; None: all are, or the call had gone on for long
            enough.
    """

    counts: tuple[RecordCounts, ...]
    failure: EmbedmillError | None = None


@dataclass(frozen=True, slots=True)
class _Written:
    """A segment whose records the store has, to be recorded once they are confirmed.

    Attributes:
        key: of the segment.
        applied: what is recorded; None: a compaction beside us has done it.
        letters: what is buried before that, by stage.
        counts: what the segment came to.
    """

    key: SegmentKey
    applied: Applied | None = None
    letters: tuple[tuple[Stage, list[LostChunk]], ...] = ()
    counts: RecordCounts = field(default_factory=RecordCounts)


@dataclass(slots=True)
class _Unfinished:
    """A segment of which the store has a part."""

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
        self._standing = StandingRecords(chunk_layer, applied_layer)
        self._store = store
        self._collection = collection
        self._now = now
        self._run = run
        self._bury = bury
        self._clock = clock
        self._at_most_s = at_most_s
        self._unfinished: dict[int, _Unfinished] = {}

    def apply(self, key: SegmentKey, previous: int | None) -> RecordCounts:
        """Apply one segment; see :meth:`apply_all`."""
        return self.apply_all([key], previous).counts[0]

    def apply_all(self, keys: Sequence[SegmentKey], previous: int | None) -> AppliedSegments:
        """Make the collection hold what segments say, then record them, as far as it goes.

        New records of a segment are written before its stale ones are deleted, so that a document
        is never missing; none of the segments is recorded before the store has confirmed them all.
        Doing it again after a crash writes the same records. The segments of one call have no
        document in common (a segment that has one is left to the next call): so nothing that is
        written again takes the place of something newer.

        Args:
            keys: of one shard, at least one, in order; every earlier segment is applied.
            previous: number of the segment applied before the first, None where there is none.

        Raises:
            TransientError: of the first; the same call may succeed later.
            RateLimitedError: the call has used up its time; the next one goes on from there.
            OutcomeUnknownError: the same; ids are stable, so repeating is safe.
            StopRunError: no write can succeed, or the store cannot confirm what it was given.
            ShardOwnedElsewhereError: another run has applied the first.
        """
        until = self._clock() + _TOGETHER_S
        written: list[_Written] = []
        documents: set[bytes] = set()
        failure: EmbedmillError | None = None
        with confirmed_together(self._store, self._collection):
            for key in keys:
                if written and self._clock() > until:
                    break
                try:
                    done = self._write(key, previous, written[-1:], documents)
                except EmbedmillError as error:
                    if not written:
                        raise
                    failure = error
                    break
                if done is None:
                    break
                written.append(done)
                previous = key.number
        return self._record_all(written, failure)

    def _record_all(
        self, written: Sequence[_Written], failure: EmbedmillError | None
    ) -> AppliedSegments:
        counts: list[RecordCounts] = []
        for each in written:
            try:
                counts.append(self._record(each))
            except EmbedmillError as error:
                if not counts:
                    raise
                failure = error
                break
        return AppliedSegments(tuple(counts), failure)

    def _is_carried_over(self, key: SegmentKey) -> bool:
        """Whether a compaction beside us recorded it: the store has had its records all along."""
        return self._applied.read_if_there(key) is not None and self._chunks.is_copy(key)

    def _write(
        self,
        key: SegmentKey,
        previous: int | None,
        before: Sequence[_Written],
        documents: set[bytes],
    ) -> _Written | None:
        """Give the store the records of a segment, and have it delete the stale ones.

        Args:
            key: the segment.
            previous: number of the one before it.
            before: that one, when this call has written it.
            documents: keys of those of the call's earlier segments; gains this one's.

        Returns:
            None: it has one of these documents too, and was not written.
        """
        try:
            self._check_owner(key)
            docs, chunks, digest = self._chunks.rows(key, CHUNK_COLUMNS, _DOC_COLUMNS)
            own = docs.column("doc_key").to_pylist()
            if not documents.isdisjoint(own):
                return None
            documents.update(own)
            others = self._records_without(key.shard, docs, previous, before)
            vectors = self._vectors.read(key, digest)
            return self._send(key, SegmentRecords(docs, chunks, vectors), vectors, others)
        except (DamagedFileError, ShardOwnedElsewhereError):
            if self._is_carried_over(key):
                return _Written(key)
            raise

    def _send(
        self, key: SegmentKey, segment: SegmentRecords, vectors: SegmentVectors, others: int
    ) -> _Written:
        """Upsert, then delete what is stale; ``others``: records of the shard's other documents."""
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
            records=others + len(vectors.vectors) - len(without),
            time=self._now(),
            run=self._run,
        )
        partial = segment.partial_documents(lost)
        return _Written(
            key,
            applied,
            # The embedder's letters may be missing: a run may have ended right after embedding.
            letters=(
                ("embed", _lost_chunks(segment, vectors.failures)),
                ("apply", _lost_chunks(segment, rejections)),
            ),
            counts=RecordCounts(applied.upserted, applied.deleted, len(rejections), partial),
        )

    def _check_owner(self, key: SegmentKey) -> None:
        done = self._applied.read_if_there(key)
        if done is not None and done.run != self._run:
            raise ShardOwnedElsewhereError(
                f"run {done.run} has applied segment {key}: two runs write to this index",
                hint="let the other one end, then run the same command again",
            )

    def _record(self, written: _Written) -> RecordCounts:
        key = written.key
        if written.applied is not None:
            try:
                for stage, lost in written.letters:
                    if lost:
                        self._bury(key, stage, lost)
                self._commit(key, written.applied)
            except (DamagedFileError, ShardOwnedElsewhereError):
                if self._is_carried_over(key):
                    return RecordCounts()
                raise
        return written.counts

    def _commit(self, key: SegmentKey, applied: Applied) -> None:
        if not self._applied.commit(key, applied):
            # The other run may be further, and what was just written older than what it wrote.
            raise ShardOwnedElsewhereError(
                f"another run has applied segment {key} meanwhile: two runs write to this index",
                hint="let the other one end, then run: embedmill audit --repair -c SETTINGS",
            )
        unfinished = self._unfinished.get(key.shard)
        if unfinished is not None and unfinished.key == key:
            del self._unfinished[key.shard]

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

    def _records_without(
        self, shard: int, docs: pa.Table, previous: int | None, before: Sequence[_Written]
    ) -> int:
        """Records of the shard before this segment, those of its documents not counted."""
        if previous is None:
            # The collection has nothing of this shard yet. A snapshot is the first segment of a
            # new collection although its documents stood elsewhere before.
            return 0
        if before and before[-1].applied is not None:
            total = before[-1].applied.records
        else:
            # Read, though this writer may have recorded it: it is gone when another run folded it.
            total = self._applied.read(SegmentKey(shard, previous)).records
        return total - self._standing.of_documents(shard, docs)


def _lost_chunks(
    segment: SegmentRecords, failures: Mapping[int, tuple[str, str]]
) -> list[LostChunk]:
    return [(*segment.place(row), *why) for row, why in sorted(failures.items())]
