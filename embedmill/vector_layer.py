"""The vectors layer: for every chunk row of a segment its vector, or why it has none.

Rows stand in the order of the chunk rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
import pyarrow as pa

from embedmill.embedder import Vectors
from embedmill.errors import AlreadyExistsError, DamagedFileError
from embedmill.made_by import exceptions, exceptions_in, run_of
from embedmill.numbered_files import NumberedFiles
from embedmill.parquet_files import from_parquet, note_of, to_parquet
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.segment import FORMAT, SegmentKey
from embedmill.vector_columns import failure_columns, failures_in, vector_column, vectors_in
from embedmill.workspace import Workspace, require

_AGAIN = "run embedmill ingest SETTINGS: the segment is embedded anew"
_ANEW = f"delete it and {_AGAIN}"

# How a row of the vectors layer came about.
# SUPERSEDED: no vector and no failure, a later segment says otherwise of the document.
EMBEDDED, REUSED, DEDUPLICATED, DEAD, SUPERSEDED = range(5)


@dataclass(frozen=True, slots=True)
class SegmentVectors:
    """Vectors of one segment, row for row with its chunks.

    Attributes:
        vectors: float32, shape (chunks, dimension); NaN in dead and superseded rows. What was read
            cannot be written to.
        origin: int8 per row: ``EMBEDDED``, ``REUSED``, ``DEDUPLICATED``, ``DEAD`` or
            ``SUPERSEDED``.
        failures: of the dead rows: (code, message).
        runs: in which the model made the vectors of those rows that are not of ``run``; "" when
            that is not known.
        run: in which it made the others, "" when that is not known.
    """

    vectors: Vectors
    origin: np.ndarray[tuple[int], np.dtype[np.int8]]
    failures: Mapping[int, tuple[str, str]]
    runs: Mapping[int, str] = field(default_factory=dict)
    run: str = ""

    def run_of(self, row: int) -> str:
        """The run in which the model made a row's vector, "" when that is not known."""
        return self.runs.get(row, self.run)

    @property
    def absent(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Per row: whether there is no vector."""
        return np.asarray((self.origin == DEAD) | (self.origin == SUPERSEDED))


class LayerNames(Protocol):
    """What names the layers of an index version."""

    @property
    def chunking(self) -> ChunkingRecipe:
        """Its chunking recipe."""
        ...

    @property
    def embedding(self) -> EmbeddingRecipe:
        """Its embedding recipe."""
        ...


class VectorLayer(NumberedFiles):
    """Vectors of the segments of one chunking recipe under one embedding recipe."""

    def __init__(
        self, workspace: Workspace, index: str, embedding_id: str, dimension: int, run: str = ""
    ) -> None:
        super().__init__(workspace, f"indexes/{index}/vectors/{embedding_id}", ".parquet")
        self.dimension = dimension
        self._run = run

    @classmethod
    def of_version(
        cls, workspace: Workspace, index: str, version: LayerNames, run: str = ""
    ) -> Self:
        """The layer of an index version; ``run`` is noted as the one that makes vectors.

        Its folder names both recipes, since the same segment number means other chunks under
        another chunking recipe.
        """
        folder = f"{version.chunking.id}/{version.embedding.id}"
        return cls(workspace, index, folder, version.embedding.dimension, run)

    def commit(self, key: SegmentKey, rows: SegmentVectors, chunks_digest: str) -> bool:
        """Write the vectors of a segment.

        Returns:
            False when another worker was first; its vectors stand.
        """
        absent = rows.absent
        codes, messages = failure_columns(rows.failures, len(absent))
        table = pa.table(
            {
                "vector": vector_column(rows.vectors, absent),
                "origin": pa.array(rows.origin, pa.int8()),
                "failure_code": codes,
                "failure_message": messages,
                "made_by": exceptions(rows.runs, len(absent)),
            }
        ).replace_schema_metadata(
            {"format": FORMAT, "chunks_digest": chunks_digest, "run": self._run}
        )
        try:
            # Floats do not compress; trying costs more than it saves.
            data = to_parquet(table, compression="none")
            self._workspace.create(self._path(key), data)
        except AlreadyExistsError:
            return False
        return True

    def exists(self, key: SegmentKey) -> bool:
        """Whether the segment has vectors."""
        return self._workspace.exists(self._path(key))

    def read(self, key: SegmentKey, chunks_digest: str) -> SegmentVectors:
        """Vectors of a segment.

        Raises:
            DamagedFileError: torn, or made for other chunks than ``chunks_digest`` names.
        """
        place = f"{self._workspace.url}/{self._path(key)}"
        data = require(self._workspace, self._path(key), again=_AGAIN)
        try:
            table = from_parquet(data, place)
        except DamagedFileError as error:
            raise DamagedFileError(str(error), hint=_ANEW) from error
        if note_of(table.schema, place, "chunks_digest") != chunks_digest:
            raise DamagedFileError(f"{place} was made for other chunks", hint=_ANEW)
        return SegmentVectors(
            vectors=vectors_in(table.column("vector"), self.dimension),
            origin=table.column("origin").to_numpy(),
            failures=failures_in(table),
            runs=exceptions_in(table, "made_by"),
            run=run_of(table.schema),
        )
