"""Compacting, one shard: fold its segments into a snapshot and drop what it replaces.

A snapshot is made of ordinary segments that hold every live document. Their vectors are copied,
and what the store has confirmed is carried over, so that nothing is embedded or written again.
Until the marker that makes the snapshot the shard's beginning is put, all earlier segments count as
well and say the same; after it, listings leave them out.

Their files are deleted once nobody needs them. A build of another version begins beside us whenever
it likes, without our lease: it commits its version to the manifest, then lists segments. We put the
marker, then read the manifest. Whatever the order of these four steps, either its listing leaves
out what the snapshot replaced, or we see its version, which lacks the snapshot, and leave the files
to a later compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from embedmill.applied_layer import Applied, AppliedLayer
from embedmill.ledger import Ledger, LedgerEntry
from embedmill.pending_segment import DraftedDocument, PendingSegment, chunks_of
from embedmill.segment import MAX_SEGMENT_CHUNKS, ChunkLayer, SegmentKey, runs_of
from embedmill.vector_layer import SegmentVectors, VectorLayer

# A shard is compacted by itself when it has more than twice the segments that it needs, and more
# than this many beyond the need: small shards are not folded every other night.
SPARE_SEGMENTS = 8

# Where a chunk of the snapshot stands: segment and row.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done to shards; sums of them add up.

    Attributes:
        segments_before: that they had.
        segments_after: that they have.
    """

    segments_before: int
    segments_after: int

    def __add__(self, other: Compaction) -> Compaction:
        return Compaction(
            self.segments_before + other.segments_before,
            self.segments_after + other.segments_after,
        )


@dataclass(frozen=True, slots=True)
class Fills:
    """Layers that one index version has filled over the shard's chunks."""

    vectors: VectorLayer
    applied: AppliedLayer


class ShardCompactor:
    """Compacts one shard. Only under the lease, and with no run in flight."""

    def __init__(
        self,
        chunks: ChunkLayer,
        fills: Callable[[], Sequence[Fills]],
        shard: int,
        segment_chunks: int,
    ) -> None:
        """Prepare.

        Args:
            chunks: the shard's chunks.
            fills: of every version that uses these chunks, as the manifest has them at the call.
            shard: its number.
            segment_chunks: chunks per segment of the snapshot.
        """
        self._chunks = chunks
        self._fills = fills
        self._shard = shard
        self._size = segment_chunks

    def compact(self, *, spare: int = 0) -> Compaction | None:
        """Compact, if it has more segments than it needs.

        An earlier compaction that was interrupted is finished in any case: what it had copied gets
        its vectors, what it had replaced is deleted.

        Args:
            spare: segments beyond the need that are left alone, and as many as are needed; 0 leaves
                none alone.

        Returns:
            What was done; None when there was no need, or when a version still lacks vectors or
            records of some segment.
        """
        self._delete_replaced()
        self.finish_copies()
        fills = self._fills()
        numbers = self._chunks.committed_of(self._shard)
        ledger, following = Ledger.fold(self._chunks, self._shard)
        needed = max(1, -(-ledger.chunk_total() // self._size))
        too_many = len(numbers) > (max(2 * needed, needed + spare) if spare else needed)
        if not too_many or not self._all_filled(fills, numbers):
            return None
        written = self._write(fills, ledger, following)
        self._chunks.mark_snapshot(SegmentKey(self._shard, following))
        self._delete_replaced()
        return Compaction(len(numbers), written)

    def finish_copies(self) -> None:
        """Carry over what an interrupted compaction had not carried over yet."""
        numbers = self._chunks.committed_of(self._shard)
        for fill in self._fills():
            applied = set(fill.applied.committed_of(self._shard))
            for number in sorted(set(numbers) - applied):
                key = SegmentKey(self._shard, number)
                # The rest is an ordinary run's to fill.
                if number - 1 not in applied or not self._chunks.is_copy(key):
                    break
                self._carry_over(fill, key)
                applied.add(number)

    def _all_filled(self, fills: Sequence[Fills], numbers: Sequence[int]) -> bool:
        wanted = set(numbers)
        return all(
            wanted <= set(layer.committed_of(self._shard))
            for fill in fills
            for layer in (fill.vectors, fill.applied)
        )

    def _write(self, fills: Sequence[Fills], ledger: Ledger, following: int) -> int:
        by_segment: dict[int, dict[bytes, LedgerEntry]] = {}
        for key, entry in ledger.entries():
            by_segment.setdefault(entry.segment, {})[key] = entry
        pending = PendingSegment()
        first = following
        for number, live in sorted(by_segment.items()):
            for document in self._documents(number, live):
                if pending.chunk_count + len(document.chunks) > MAX_SEGMENT_CHUNKS:
                    self._commit(fills, following, pending)
                    following, pending = following + 1, PendingSegment()
                pending.add(document)
                if pending.chunk_count >= self._size:
                    self._commit(fills, following, pending)
                    following, pending = following + 1, PendingSegment()
        # A shard without documents keeps one empty segment, so that its numbers go on.
        if pending.document_count or following == first:
            self._commit(fills, following, pending)
            following += 1
        return following - first

    def _documents(self, number: int, live: dict[bytes, LedgerEntry]) -> list[DraftedDocument]:
        """The live documents of a segment, every chunk referring to its place there."""
        docs, chunks, _ = self._chunks.rows(SegmentKey(self._shard, number))
        found = []
        for row, run in zip(docs.to_pylist(), runs_of(docs), strict=True):
            entry = live.get(row["doc_key"])
            if entry is None or row["deleted"]:
                continue
            first, count = row["first_chunk"], row["chunk_count"]
            stored, hashes = chunks_of(chunks.slice(first, count))
            document = DraftedDocument(
                doc_id=row["doc_id"],
                fingerprint=row["fingerprint"],
                uri=row["uri"],
                metadata=row["metadata"],
                chunks=stored,
                hashes=hashes,
                same_as=[(number, first + at) for at in range(count)],
                previous=entry,
                run=run,
            )
            found.append(document)
        return found

    def _commit(self, fills: Sequence[Fills], number: int, pending: PendingSegment) -> None:
        """Make the segment exist, then carry over what each version has of its chunks."""
        key = SegmentKey(self._shard, number)
        self._chunks.commit(key, *pending.tables(), copy=True)
        for fill in fills:
            self._carry_over(fill, key)

    def _carry_over(self, fill: Fills, key: SegmentKey) -> None:
        chunks, digest = self._chunks.chunks(key)
        numbers = chunks.column("same_as_segment").to_pylist()
        places = list(zip(numbers, chunks.column("same_as_row").to_pylist(), strict=True))
        fill.vectors.commit(key, self._vectors(fill.vectors, places), digest)
        fill.applied.commit(key, self._applied(fill.applied, key.number, places))

    def _vectors(self, layer: VectorLayer, places: Sequence[Place]) -> SegmentVectors:
        """Copies of the vectors at these places; those of one segment are in memory at a time."""
        vectors = np.full((len(places), layer.dimension), np.nan, dtype=np.float32)
        origin = np.zeros(len(places), dtype=np.int8)
        failures: dict[int, tuple[str, str]] = {}
        runs: dict[int, str] = {}
        rows_of: dict[int, list[int]] = {}
        for row, (number, _) in enumerate(places):
            rows_of.setdefault(number, []).append(row)
        for number, rows in rows_of.items():
            key = SegmentKey(self._shard, number)
            source = layer.read(key, self._chunks.digest(key))
            at = [places[row][1] for row in rows]
            vectors[rows], origin[rows] = source.vectors[at], source.origin[at]
            for row, stood in zip(rows, at, strict=True):
                runs[row] = source.run_of(stood)
                if stood in source.failures:
                    failures[row] = source.failures[stood]
        return SegmentVectors(vectors, origin, failures, runs)

    def _applied(self, layer: AppliedLayer, number: int, places: Sequence[Place]) -> Applied:
        before = layer.read(SegmentKey(self._shard, number - 1))
        rejected: dict[Place, tuple[str, str]] = {}
        for source in {n for n, _ in places}:
            for row, code, message in layer.read(SegmentKey(self._shard, source)).rejected:
                rejected[source, row] = (code, message)
        return Applied(
            upserted=0,
            deleted=0,
            rejected=tuple(
                (row, *rejected[place]) for row, place in enumerate(places) if place in rejected
            ),
            records=before.records,
            time=before.time,
            run=before.run,
        )

    def _delete_replaced(self) -> None:
        """Delete what a snapshot replaced, unless a version that lacks the snapshot may read it."""
        start = self._chunks.start_of(self._shard)
        if not start:
            return
        # The order is what makes it safe: first the marker, then the manifest.
        fills = self._fills()
        if not self._all_filled(fills, self._chunks.committed_of(self._shard)):
            return
        self._chunks.delete_below(self._shard, start)
        for fill in fills:
            fill.vectors.delete_below(self._shard, start)
            fill.applied.delete_below(self._shard, start)
