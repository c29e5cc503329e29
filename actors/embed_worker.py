"""Holds one model; gives segments their vectors."""

from __future__ import annotations

from collections.abc import Collection

from embedmill.assembly import Layers, embedder_of
from embedmill.counts import ChunkCounts
from embedmill.dead_letter import bury_chunks
from embedmill.embedding import embed_segment, probe_document
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan


class EmbedWorker:
    """Takes segment keys, commits vectors segments."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._layers = Layers(context)
        self._embedder = embedder_of(context.settings, context.embedding)

    def ready(self) -> None:
        """Nothing: a first call has the model loaded."""

    def embed(
        self, key: SegmentKey, poisoned: Collection[int] = (), loans: Collection[Loan] = ()
    ) -> ChunkCounts:
        """Embed a segment and commit its vectors; see ``embed_segment`` for what it raises.

        Args:
            key: the segment.
            poisoned: document rows that ended workers; their chunks become dead letters.
            loans: rows that may take the vector of an equal text elsewhere in this run.
        """
        outcome = embed_segment(
            key,
            self._layers.chunks,
            self._layers.vectors,
            self._embedder,
            poisoned=poisoned,
            loans=loans,
        )
        if outcome.failures:
            bury_chunks(
                self._layers.workspace,
                self._context,
                self._layers.chunks,
                key,
                "embed",
                outcome.failures.values(),
            )
        return outcome.counts

    def document_rows(self, key: SegmentKey) -> list[int]:
        """Rows of the documents that have chunks in a segment."""
        chunks, _ = self._layers.chunks.chunks(key)
        return sorted(set(chunks.column("doc_row").to_pylist()))

    def probe(self, key: SegmentKey, doc_row: int) -> None:
        """Embed one document and drop the vectors; a document that ends workers ends this one."""
        probe_document(key, doc_row, self._layers.chunks, self._embedder)
