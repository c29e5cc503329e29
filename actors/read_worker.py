"""Reads the source, split by split, and parts its rows by the worker that owns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from embedmill.assembly import source_of
from embedmill.settings import Settings
from embedmill.sharding import ShardPlan
from embedmill.source import Split


@dataclass(frozen=True, slots=True)
class BlockRead:
    """What the driver learns of a block; the rows stay where they are.

    Attributes:
        rows: for each shard worker.
        done: the split has no more blocks; this one may be empty.
        size: bytes of the block.
    """

    rows: tuple[int, ...]
    done: bool
    size: int = 0


class ReadWorker:
    """Reads splits; one at a time, one block per call, memory bounded by a block."""

    def __init__(self, settings: Settings, shard_workers: int) -> None:
        self._source = source_of(settings)
        self._plan = ShardPlan(settings.shard_count)
        self._workers = shard_workers
        self._open: tuple[int, int, Iterator[pa.Table]] | None = None

    def read_block(
        self, split: Split, number: int, only: frozenset[str] | None = None
    ) -> list[Any]:
        """Read block ``number`` of a split.

        Blocks of a split are asked for in order; a worker that is new to the split skips to the
        block by reading, since sources deliver the same blocks on every reading.

        Args:
            split: of the source.
            number: of the block.
            only: ids and uris of the rows to take; all without it.

        Returns:
            A :class:`BlockRead`, then for each shard worker its rows with a column ``shard``, or
            None.

        Raises:
            SourceError: the split cannot be read; the scan is then incomplete.
        """
        blocks = self._blocks(split, number)
        # Reading that failed half-way is not gone on with: it would look like the end.
        self._open = None
        block = next(blocks, None)
        if block is None:
            return [BlockRead((0,) * self._workers, done=True), *([None] * self._workers)]
        self._open = (split.number, number + 1, blocks)
        parts = self._parted(block if only is None else _taken(block, only))
        rows = tuple(0 if part is None else part.num_rows for part in parts)
        return [BlockRead(rows, done=False, size=block.nbytes), *parts]

    def _blocks(self, split: Split, number: int) -> Iterator[pa.Table]:
        if self._open is not None and self._open[:2] == (split.number, number):
            return self._open[2]
        blocks = self._source.read(split)
        for _ in range(number):
            next(blocks, None)
        return blocks

    def _parted(self, block: pa.Table) -> list[pa.Table | None]:
        # A row without an id belongs to the shard of its place.
        names = zip(
            block.column("doc_id").to_pylist(), block.column("uri").to_pylist(), strict=True
        )
        shards = np.array([self._plan.shard_of(doc_id or uri) for doc_id, uri in names], np.int32)
        block = block.append_column("shard", pa.array(shards))
        parts = []
        for worker in range(self._workers):
            rows = np.flatnonzero(shards % self._workers == worker)
            if len(rows) == block.num_rows:
                # All for one, as it always is with one worker; the first take costs 0.2 s.
                parts.append(block)
            else:
                parts.append(block.take(pa.array(rows)) if len(rows) else None)
        return parts


def _taken(block: pa.Table, only: frozenset[str]) -> pa.Table:
    names = zip(block.column("doc_id").to_pylist(), block.column("uri").to_pylist(), strict=True)
    rows = [row for row, (doc_id, uri) in enumerate(names) if doc_id in only or uri in only]
    return block.take(pa.array(rows, pa.int64()))
