"""Holds one model; gives segments their vectors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from embedmill.assembly import Layers, watched_embedder_of
from embedmill.budget_keeper import BudgetKeeper
from embedmill.counts import ChunkCounts, RateUse
from embedmill.dead_letter import bury_chunks
from embedmill.embedder import EmbeddedTexts
from embedmill.embedding import embed_segment, probe_document
from embedmill.rate_assembly import limiter_of_run, use_of
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan


@dataclass(frozen=True, slots=True)
class Embedded:
    """What a call did.

    Attributes:
        counts: of the segment's chunks.
        rate: what it used of a provider's limits, and calls before it that failed.
    """

    counts: ChunkCounts
    rate: RateUse


class EmbedWorker:
    """Takes segment keys, commits vectors segments.

    Where a provider embeds, in several threads at a time: each call has a segment of its own.
    """

    def __init__(self, context: RunContext, keeper: BudgetKeeper | None = None) -> None:
        """Load the model.

        Args:
            context: of the run.
            keeper: of the run's rate budget.
        """
        self._context = context
        self._layers = Layers(context)
        self._limiter = limiter_of_run(context.settings, keeper)
        self._embedder = watched_embedder_of(context, self._layers.workspace, self._limiter)

    def embed(
        self,
        key: SegmentKey,
        poisoned: Collection[int] = (),
        loans: Collection[Loan] = (),
        stale: Collection[int] = (),
        trusted: bool = False,  # noqa: FBT001, FBT002 - of a call over the executor
    ) -> Embedded:
        """Embed a segment and commit its vectors; see ``embed_segment`` for what it raises.

        Args:
            key: the segment.
            poisoned: document rows that ended workers; their chunks become dead letters.
            loans: rows that may take the vector of an equal text elsewhere in this run.
            stale: document rows that are superseded by now.
            trusted: the run has proved that the provider's model is the one it was.
        """
        if trusted:
            self._embedder.trust()
        outcome = embed_segment(
            key,
            self._layers.chunks,
            self._layers.vectors,
            self._embedder,
            poisoned=poisoned,
            loans=loans,
            stale=stale,
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
        return Embedded(outcome.counts, use_of(self._limiter))

    def prove(self) -> None:
        """Prove that the model is the one it was; see ``WatchedEmbedder.prove``."""
        self._embedder.prove()

    def queries(self, texts: Sequence[str]) -> EmbeddedTexts:
        """Embed questions."""
        return self._embedder.embed(texts, "query")

    def document_rows(self, key: SegmentKey) -> list[int]:
        """Rows of the documents that have chunks in a segment."""
        chunks, _ = self._layers.chunks.chunks(key, ("doc_row",))
        return sorted(set(chunks.column("doc_row").to_pylist()))

    def close(self) -> None:
        """Close the model's connections, where it has any."""
        self._embedder.close()

    def probe(self, key: SegmentKey, doc_row: int) -> None:
        """Embed one document and drop the vectors; a document that ends workers ends this one."""
        probe_document(key, doc_row, self._layers.chunks, self._embedder)
