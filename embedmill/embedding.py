"""Embedding, one segment: take the vectors that exist, embed the other texts once, commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from embedmill.counts import ChunkCounts
from embedmill.embedder import Embedder
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.segment_work import WORK_COLUMNS, SegmentWork
from embedmill.text_index import Loan
from embedmill.vector_layer import (
    DEAD,
    DEDUPLICATED,
    EMBEDDED,
    REUSED,
    SUPERSEDED,
    SegmentVectors,
    VectorLayer,
)


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
    stale: Collection[int] = (),
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
        stale: document rows that a later segment has otherwise: nobody wants their vectors.

    Raises:
        TransientError: nothing was committed; the same call may succeed later.
        StopRunError: no call can succeed.
        DamagedFileError: the segment's files are not what was committed.
    """
    chunks, digest = chunk_layer.chunks(key, WORK_COLUMNS)
    if vector_layer.exists(key):
        return outcome_of(chunks, vector_layer.read(key, digest), tokens=0)
    work = SegmentWork(chunks, embedder.recipe.dimension)
    work.bury_documents(poisoned)
    work.supersede_documents(stale)
    work.reuse(key.shard, loans, chunk_layer, vector_layer)
    work.embed(embedder)
    rows = work.rows()
    if not vector_layer.commit(key, rows, digest):
        rows = vector_layer.read(key, digest)
    return outcome_of(chunks, rows, tokens=work.tokens)


def probe_document(
    key: SegmentKey, doc_row: int, chunk_layer: ChunkLayer, embedder: Embedder
) -> None:
    """Embed the chunks of one document and drop the vectors: does it end the worker?"""
    chunks, _ = chunk_layer.chunks(key, ("doc_row", "text"))
    rows = np.flatnonzero(chunks.column("doc_row").to_numpy() == doc_row)
    embedder.embed(chunks.column("text").take(pa.array(rows)).to_pylist(), "document")


def outcome_of(chunks: pa.Table, rows: SegmentVectors, *, tokens: int) -> EmbedOutcome:
    """Count the rows of a segment by how they came about, and name those that died."""
    tally = np.bincount(rows.origin, minlength=5)
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
        superseded=int(tally[SUPERSEDED]),
    )
    failures = {
        row: (doc_rows[row].as_py(), indexes[row].as_py(), code, message)
        for row, (code, message) in rows.failures.items()
    }
    return EmbedOutcome(counts, failures)
