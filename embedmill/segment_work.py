"""The vectors of one segment while they are gathered, from wherever they come."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from embedmill.embedder import Embedder, Vectors
from embedmill.errors import DamagedFileError
from embedmill.segment import ChunkLayer, SegmentKey, digests_in
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

# What has to be known of a segment's chunks to give them vectors.
WORK_COLUMNS = (
    "doc_row",
    "chunk_index",
    "text",
    "truncated",
    "text_hash",
    "same_as_segment",
    "same_as_row",
)


class SegmentWork:
    """Vectors of one segment while they are gathered."""

    def __init__(self, chunks: pa.Table, dimension: int) -> None:
        """Take a segment's chunks, at least their ``WORK_COLUMNS``."""
        self._chunks = chunks
        count = chunks.num_rows
        self._vectors: Vectors = np.full((count, dimension), np.nan, dtype=np.float32)
        self._origin = np.full(count, EMBEDDED, dtype=np.int8)
        self._open = np.ones(count, dtype=bool)
        self._failures: dict[int, tuple[str, str]] = {}
        self._runs: dict[int, str] = {}
        self._hashes = digests_in(chunks.column("text_hash"))
        self.tokens = 0

    def bury_documents(self, doc_rows: Collection[int]) -> None:
        """Let the chunks of some documents die."""
        if doc_rows:
            lost = np.isin(self._chunks.column("doc_row").to_numpy(), list(doc_rows))
            for row in np.flatnonzero(lost):
                self.bury(int(row), "killed-worker", "embedding this document ends the worker")

    def supersede_documents(self, doc_rows: Collection[int]) -> None:
        """Let the chunks of some documents be, for nobody wants their vectors any more."""
        if doc_rows:
            stale = np.isin(self._chunks.column("doc_row").to_numpy(), list(doc_rows))
            for row in np.flatnonzero(stale & self._open):
                self.supersede(int(row))

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
            chunks, digest = chunk_layer.chunks(source, ("text_hash",))
            stored = vector_layer.read(source, digest)
        except DamagedFileError:
            # Embedding again is always right; reuse only saves.
            return
        hashes = digests_in(chunks.column("text_hash"))
        absent = stored.absent
        for loan in loans:
            at = loan.source_row
            if hashes[at] == self._hashes[loan.row] and not absent[at]:
                self.fill(loan.row, stored.vectors[at], origin)
                self._runs[loan.row] = stored.run_of(at)

    def wanted(self) -> list[int]:
        """Rows to be embedded, ascending: of each text that has no vector yet, the first."""
        first: dict[bytes, int] = {}
        for row in np.flatnonzero(self._open):
            first.setdefault(self._hashes[row], int(row))
        return sorted(first.values())

    def texts(self, rows: Sequence[int]) -> list[str]:
        """Texts of some rows, in the given order."""
        texts: list[str] = self._chunks.column("text").take(pa.array(rows, pa.int64())).to_pylist()
        return texts

    def embed(self, embedder: Embedder) -> None:
        """Embed what is still open, each text once."""
        rows = self.wanted()
        if not rows:
            return
        embedded = embedder.embed(self.texts(rows), "document")
        self.tokens += embedded.token_count
        # All at once, then what failed.
        self._vectors[rows] = embedded.vectors
        self._open[rows] = False
        for at, failure in embedded.failures.items():
            self.bury(rows[at], failure.code, str(failure))
        self.spread()

    def fill(self, row: int, vector: Vectors, origin: int = EMBEDDED) -> None:
        """Give a row its vector."""
        self._vectors[row] = vector
        self._origin[row] = origin
        self._open[row] = False

    def borrow(self, row: int, text_hash: bytes, vector: Vectors) -> None:
        """Give an open row the vector of an equal text; of another text it is let be."""
        if self._open[row] and self._hashes[row] == text_hash:
            self.fill(row, vector, DEDUPLICATED)

    def bury(self, row: int, code: str, message: str) -> None:
        """A row will have no vector."""
        self._failures[row] = (code, message)
        self._origin[row] = DEAD
        self._open[row] = False

    def supersede(self, row: int) -> None:
        """A row gets no vector, for nobody wants one any more."""
        self._origin[row] = SUPERSEDED
        self._open[row] = False

    def spread(self) -> None:
        """Let the rows that are still open share what became of an equal text of this segment."""
        if not self._open.any():
            return
        # Of equal texts a superseded one decides only where there is no other.
        order = sorted(
            np.flatnonzero(~self._open), key=lambda row: (self._origin[row] != SUPERSEDED, -row)
        )
        settled = {self._hashes[row]: int(row) for row in order}
        for row in np.flatnonzero(self._open):
            source = settled.get(self._hashes[row])
            if source is None:
                continue
            if source in self._failures:
                self.bury(int(row), *self._failures[source])
            elif self._origin[source] == SUPERSEDED:
                self.supersede(int(row))
            else:
                self.fill(int(row), self._vectors[source], DEDUPLICATED)
                if source in self._runs:
                    self._runs[int(row)] = self._runs[source]

    def rows(self) -> SegmentVectors:
        """All rows, in order.

        Raises:
            ValueError: a row is still open; that is a bug, never data.
        """
        if self._open.any():
            raise ValueError(f"{int(self._open.sum())} rows have neither vector nor failure")
        return SegmentVectors(self._vectors, self._origin, self._failures, self._runs)
