"""Embedding, one segment: take the vectors that exist, embed the other texts once, commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from embedmill.counts import ChunkCounts
from embedmill.embedder import EmbeddedTexts, Embedder, Vectors
from embedmill.errors import DamagedFileError
from embedmill.segment import (
    DEAD,
    DEDUPLICATED,
    EMBEDDED,
    REUSED,
    ChunkLayer,
    SegmentKey,
    SegmentVectors,
    VectorLayer,
)
from embedmill.text_index import Loan


@dataclass(frozen=True, slots=True)
class EmbedOutcome:
    """What one call did.

    Attributes:
        counts: of the segment's chunks.
        failures: by chunk row: (doc_row, chunk_index, code, message).
    """

    counts: ChunkCounts
    failures: Mapping[int, tuple[int, int, str, str]]


def embed_segment(
    key: SegmentKey,
    chunk_layer: ChunkLayer,
    vector_layer: VectorLayer,
    embedder: Embedder,
    *,
    poisoned: Collection[int] = (),
    loans: Collection[Loan] = (),
) -> EmbedOutcome:
    """Give a segment its vectors and commit them.

    Equal texts of the segment are embedded once; a chunk that has the text of the same document's
    earlier version takes that vector. Running it again after a crash embeds the segment again at
    most once; a committed segment is never embedded again, its counts are returned.

    Args:
        key: the segment.
        chunk_layer: holds its chunks.
        vector_layer: takes its vectors.
        embedder: holds the model.
        poisoned: document rows that ended workers; their chunks die unread.
        loans: rows that may take the vector of an equal text elsewhere in this run.

    Raises:
        TransientError: nothing was committed; the same call may succeed later.
        StopRunError: no call can succeed.
        DamagedFileError: the segment's files are not what was committed.
    """
    chunks, digest = chunk_layer.chunks(key)
    if vector_layer.exists(key):
        return _outcome(chunks, vector_layer.read(key, digest), tokens=0)
    work = _Work(chunks, embedder.recipe.dimension)
    work.bury_documents(poisoned)
    work.reuse(key.shard, loans, chunk_layer, vector_layer)
    work.embed(embedder)
    rows = work.rows()
    if not vector_layer.commit(key, rows, digest):
        rows = vector_layer.read(key, digest)
    return _outcome(chunks, rows, tokens=work.tokens)


def probe_document(
    key: SegmentKey, doc_row: int, chunk_layer: ChunkLayer, embedder: Embedder
) -> None:
    """Embed the chunks of one document and drop the vectors: does it end the worker?"""
    chunks, _ = chunk_layer.chunks(key)
    rows = np.flatnonzero(chunks.column("doc_row").to_numpy() == doc_row)
    embedder.embed(chunks.column("text").take(pa.array(rows)).to_pylist(), "document")


class _Work:
    """Vectors of one segment while they are gathered."""

    def __init__(self, chunks: pa.Table, dimension: int) -> None:
        self._chunks = chunks
        count = chunks.num_rows
        self._vectors: Vectors = np.full((count, dimension), np.nan, dtype=np.float32)
        self._origin = np.full(count, EMBEDDED, dtype=np.int8)
        self._open = np.ones(count, dtype=bool)
        self._failures: dict[int, tuple[str, str]] = {}
        self._hashes: list[bytes] = chunks.column("text_hash").to_pylist()
        self.tokens = 0

    def bury_documents(self, doc_rows: Collection[int]) -> None:
        """Let the chunks of some documents die."""
        if doc_rows:
            lost = np.isin(self._chunks.column("doc_row").to_numpy(), list(doc_rows))
            for row in np.flatnonzero(lost):
                self._bury(int(row), "killed-worker", "embedding this document ends the worker")

    def reuse(
        self,
        shard: int,
        loans: Collection[Loan],
        chunk_layer: ChunkLayer,
        vector_layer: VectorLayer,
    ) -> None:
        """Take the vectors of equal texts where they exist.

        The document's earlier version first (``REUSED``), then the loans (``DEDUPLICATED``). Both
        are hints: a source that is missing, damaged, dead or of another text is passed over, and
        the text is embedded.
        """
        numbers = self._chunks.column("same_as_segment").to_numpy()
        rows = self._chunks.column("same_as_row").to_numpy()
        earlier = [
            Loan(int(row), SegmentKey(shard, int(numbers[row])), int(rows[row]))
            for row in np.flatnonzero(numbers >= 0)
        ]
        for hints, origin in ((earlier, REUSED), (loans, DEDUPLICATED)):
            by_source: dict[SegmentKey, list[Loan]] = {}
            for loan in hints:
                if self._open[loan.row]:
                    by_source.setdefault(loan.source, []).append(loan)
            for source, wanted in by_source.items():
                self._take_from(source, wanted, origin, chunk_layer, vector_layer)

    def _take_from(
        self,
        source: SegmentKey,
        loans: Collection[Loan],
        origin: int,
        chunk_layer: ChunkLayer,
        vector_layer: VectorLayer,
    ) -> None:
        if not vector_layer.exists(source):
            return
        try:
            chunks, digest = chunk_layer.chunks(source)
            stored = vector_layer.read(source, digest)
        except DamagedFileError:
            # Embedding again is always right; reuse only saves.
            return
        hashes = chunks.column("text_hash").to_pylist()
        for loan in loans:
            at = loan.source_row
            if hashes[at] == self._hashes[loan.row] and stored.origin[at] != DEAD:
                self._fill(loan.row, stored.vectors[at], origin)

    def embed(self, embedder: Embedder) -> None:
        """Embed what is still open, each text once."""
        rows = np.flatnonzero(self._open)
        first: dict[bytes, int] = {}
        for row in rows:
            first.setdefault(self._hashes[row], int(row))
        unique = sorted(first.values())
        if not unique:
            return
        texts = self._chunks.column("text").take(pa.array(unique)).to_pylist()
        embedded = embedder.embed(texts, "document")
        self.tokens += embedded.token_count
        self._take(unique, embedded)
        for row in rows:
            source = first[self._hashes[row]]
            if row != source and source in self._failures:
                self._bury(int(row), *self._failures[source])
            elif row != source:
                self._fill(int(row), self._vectors[source], DEDUPLICATED)

    def rows(self) -> SegmentVectors:
        """All rows, in order."""
        return SegmentVectors(self._vectors, self._origin, self._failures)

    def _take(self, rows: list[int], embedded: EmbeddedTexts) -> None:
        for at, row in enumerate(rows):
            failure = embedded.failures.get(at)
            if failure is None:
                self._fill(row, embedded.vectors[at], EMBEDDED)
            else:
                self._bury(row, failure.code, str(failure))

    def _fill(self, row: int, vector: Vectors, origin: int) -> None:
        self._vectors[row] = vector
        self._origin[row] = origin
        self._open[row] = False

    def _bury(self, row: int, code: str, message: str) -> None:
        self._failures[row] = (code, message)
        self._origin[row] = DEAD
        self._open[row] = False


def _outcome(chunks: pa.Table, rows: SegmentVectors, *, tokens: int) -> EmbedOutcome:
    tally = np.bincount(rows.origin, minlength=4)
    doc_rows = chunks.column("doc_row")
    indexes = chunks.column("chunk_index")
    truncated = chunks.column("truncated").to_numpy(zero_copy_only=False)
    counts = ChunkCounts(
        chunks=chunks.num_rows,
        embedded=int(tally[EMBEDDED]),
        reused=int(tally[REUSED]),
        deduplicated=int(tally[DEDUPLICATED]),
        dead=int(tally[DEAD]),
        truncated=int(truncated.sum()),
        tokens=tokens,
    )
    failures = {
        row: (doc_rows[row].as_py(), indexes[row].as_py(), code, message)
        for row, (code, message) in rows.failures.items()
    }
    return EmbedOutcome(counts, failures)
