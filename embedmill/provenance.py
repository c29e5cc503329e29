"""Where a record comes from: segment, vector, embedding job, run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from embedmill.applied_layer import AppliedLayer
from embedmill.document import record_id
from embedmill.errors import RefusedError
from embedmill.job_records import JobRecord, JobRecords
from embedmill.ledger import Ledger
from embedmill.manifest import IndexVersion
from embedmill.plain_numbers import number_of
from embedmill.rereading import undisturbed
from embedmill.segment import ChunkLayer, SegmentKey, digests_in, runs_of
from embedmill.sharding import ShardPlan, doc_key
from embedmill.vector_layer import DEAD, DEDUPLICATED, REUSED, SegmentVectors, VectorLayer
from embedmill.workspace import Workspace

# Where a chunk row stands.
Place = tuple[SegmentKey, int]


@dataclass(frozen=True, slots=True)
class ChunkOrigin:
    """Where the record of one chunk comes from.

    Attributes:
        chunk_index: of the chunk.
        record: its id in the store.
        segment: that holds it (``s0007/00000012``).
        row: in the segment.
        vector: ``embedded``; ``reused`` from an earlier version of the document; ``equal-text``:
            of another chunk with the same text; ``dead``: it has none; ``missing``: not embedded
            yet.
        made_in: segment and row whose embedding it is, where that is known; after a compaction the
            segment itself may be gone.
        job: key of the embedding job that brought the vector, "" when none did.
        provider_job: its id at the provider, "" likewise.
        chunked_by: run that cut the document, "" when that is not known.
        embedded_by: run in which the model made the vector, "" likewise; of a job the run that
            collected it.
        run: that wrote the record to the store, "" when it is not there yet.
        time: when it did, UTC, ISO 8601.
        note: why there is no vector or no record.
    """

    chunk_index: int
    record: str
    segment: str
    row: int
    vector: str
    made_in: str
    job: str
    provider_job: str
    chunked_by: str
    embedded_by: str
    run: str
    time: str
    note: str = ""


class Provenance:
    """Answers for one index version."""

    def __init__(self, workspace: Workspace, index: str, version: IndexVersion) -> None:
        self._index = index
        self._version = version
        self._chunks = ChunkLayer(workspace, index, version.chunking.id)
        self._vectors = VectorLayer.of_version(workspace, index, version)
        self._applied = AppliedLayer(workspace, index, version.collection)
        records = JobRecords(workspace, index, version)
        # Chunks of one document stand in one segment, and were taken over from a few.
        self._chunks_of = lru_cache(maxsize=8)(self._chunks.chunks)
        self._vectors_of = lru_cache(maxsize=8)(self._read_vectors)
        self._runs_of = lru_cache(maxsize=1)(lambda key: runs_of(self._chunks.docs(key)))
        self._jobs = lru_cache(maxsize=1)(lambda: list(records.all()))

    def of(self, doc_id: str, chunk_index: int | None = None) -> Sequence[ChunkOrigin]:
        """Where the chunks of a document come from, or one of them.

        Raises:
            RefusedError: the version has no such document, or the document no such chunk.
        """
        return undisturbed(lambda: self._of(doc_id, chunk_index))

    def _of(self, doc_id: str, chunk_index: int | None) -> Sequence[ChunkOrigin]:
        shard = ShardPlan(self._version.shard_count).shard_of(doc_id)
        entry = Ledger.fold(self._chunks, shard)[0].get(doc_key(doc_id))
        name = f"{self._version.name} of index {self._index!r}"
        if entry is None:
            raise RefusedError(
                f"{name} has no document {doc_id!r}",
                hint="if it should have one: embedmill dlq list -c SETTINGS, and the last "
                "run's report",
            )
        if chunk_index is not None and not 0 <= chunk_index < entry.chunk_count:
            raise RefusedError(
                f"document {doc_id!r} has {number_of(entry.chunk_count, 'chunk')} in {name}, "
                "numbered from 0"
            )
        key = SegmentKey(shard, entry.segment)
        docs = self._chunks.docs(key, ("doc_id", "first_chunk"))
        first = docs.column("first_chunk")[docs.column("doc_id").to_pylist().index(doc_id)].as_py()
        wanted = range(entry.chunk_count) if chunk_index is None else [chunk_index]
        found = [self._origin(doc_id, key, first + at, at) for at in wanted]
        # Gone by now where a compaction has folded it, which then made us miss what is recorded.
        self._chunks.docs(key, ("doc_id",))
        return found

    def _origin(self, doc_id: str, key: SegmentKey, row: int, chunk_index: int) -> ChunkOrigin:
        chunks, _ = self._chunks_of(key)
        vectors = self._vectors_of(key)
        applied = self._applied.read_if_there(key)
        word, place, note = self._vector(key, row, chunks, vectors)
        job = self._job(place) if place is not None else None
        rejected = {at: f"{code}: {said}" for at, code, said in applied.rejected} if applied else {}
        return ChunkOrigin(
            chunk_index=chunk_index,
            record=str(record_id(doc_id, chunk_index)),
            segment=str(key),
            row=row,
            vector=word,
            made_in="" if place is None else f"{place[0]} row {place[1]}",
            job="" if job is None else job.intent.key,
            provider_job="" if job is None or job.handle is None else job.handle.job_id,
            chunked_by=self._runs_of(key)[chunks.column("doc_row")[row].as_py()],
            embedded_by="" if vectors is None or vectors.absent[row] else vectors.run_of(row),
            run=applied.run if applied and row not in rejected else "",
            time=applied.time if applied and row not in rejected else "",
            note=note or rejected.get(row, "" if applied else "not in the store yet"),
        )

    def _read_vectors(self, key: SegmentKey) -> SegmentVectors | None:
        if not self._vectors.exists(key):
            return None
        _, digest = self._chunks_of(key)
        return self._vectors.read(key, digest)

    def _vector(
        self, key: SegmentKey, row: int, chunks: pa.Table, vectors: SegmentVectors | None
    ) -> tuple[str, Place | None, str]:
        """How the row came to its vector, where that was made, and why there is none."""
        if vectors is None:
            return "missing", None, "not embedded yet"
        origin = int(vectors.origin[row])
        if origin == DEAD:
            return "dead", None, ": ".join(vectors.failures.get(row, ("", "")))
        if origin == DEDUPLICATED:
            return "equal-text", _twin(key, row, chunks, vectors), ""
        if origin == REUSED or self._chunks.is_copy(key):
            return ("reused" if origin == REUSED else "embedded"), self._source(key, row), ""
        return "embedded", (key, row), ""

    def _source(self, key: SegmentKey, row: int) -> Place:
        """Follow the places that a vector was taken over from, as far as they are known."""
        numbers = set(self._chunks.committed_of(key.shard))
        while key.number in numbers:
            chunks, _ = self._chunks_of(key)
            vectors = self._vectors_of(key)
            taken = vectors is not None and int(vectors.origin[row]) == REUSED
            number = chunks.column("same_as_segment")[row].as_py()
            if number < 0 or not (taken or self._chunks.is_copy(key)):
                break
            key, row = SegmentKey(key.shard, number), chunks.column("same_as_row")[row].as_py()
        return key, row

    def _job(self, place: Place) -> JobRecord | None:
        """The last collected job that had this row."""
        key, row = place
        found = [
            record
            for record in self._jobs()
            if record.outcome is not None and row in record.intent.rows().get(key, ())
        ]
        return max(found, key=lambda record: record.intent.created, default=None)


def _twin(key: SegmentKey, row: int, chunks: pa.Table, vectors: SegmentVectors) -> Place | None:
    """The row of the same segment with the same text that was embedded, if it is there."""
    hashes = digests_in(chunks.column("text_hash"))
    for at, text_hash in enumerate(hashes):
        if text_hash == hashes[row] and int(vectors.origin[at]) not in (DEDUPLICATED, DEAD):
            return key, at
    return None
