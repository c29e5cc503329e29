"""A segment that is being filled, in memory until it is committed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import orjson
import pyarrow as pa

from embedmill.chunker import Chunk
from embedmill.document import canonical_metadata
from embedmill.ledger import LedgerEntry
from embedmill.parser import ParsedDocument
from embedmill.segment import CHUNKS_SCHEMA, DOCS_SCHEMA, ChunkLayer, SegmentKey, runs_of
from embedmill.sharding import doc_key


class DraftedDocument(NamedTuple):
    """One document row with its chunk rows. A tuple: half of a dataclass's time to make.

    Attributes:
        same_as: for each chunk the (segment, row) whose vector may be taken, or (-1, -1).
        previous: the document's entry before this segment, None when it is new.
        deleted: the document is gone; it has no chunks.
        run: that cut it, "" when that is not known; None: the one that commits the segment.
    """

    doc_id: str
    fingerprint: bytes
    uri: str
    metadata: str
    chunks: Sequence[Chunk]
    hashes: Sequence[bytes]
    same_as: Sequence[tuple[int, int]]
    previous: LedgerEntry | None
    deleted: bool = False
    run: str | None = None

    @classmethod
    def deletion(cls, doc_id: str, entry: LedgerEntry) -> Self:
        """The row that says a document is gone."""
        return cls(doc_id, b"\0" * 16, "", "{}", (), (), (), entry, deleted=True)


class PendingSegment:
    """Rows of the next segment of a shard, as plain tuples: a document's, a chunk's.

    Documents and chunks are let go at once: the collector of garbage would look at each of them
    again and again while the segment fills, and passes over tuples of plain values.

    Attributes:
        text_bytes: of the texts of all chunks.
    """

    def __init__(self) -> None:
        self._docs: list[tuple[object, ...]] = []
        self._chunks: list[tuple[object, ...]] = []
        self._hashes: list[bytes] = []
        self._same_as: list[tuple[int, int]] = []
        self.text_bytes = 0

    @property
    def document_count(self) -> int:
        """How many document rows there are."""
        return len(self._docs)

    @property
    def chunk_count(self) -> int:
        """How many chunk rows there are."""
        return len(self._chunks)

    def add(self, document: DraftedDocument, key: bytes | None = None) -> None:
        """Append a document; documents never span segments.

        Args:
            document: with its chunks.
            key: of its id, where that is known already.
        """
        before = document.previous
        row = (
            document.doc_id,
            key or doc_key(document.doc_id),
            document.deleted,
            document.fingerprint,
            len(document.chunks),
            -1 if before is None else before.segment,
            0 if before is None else before.chunk_count,
            document.uri,
            document.metadata,
            document.run,
        )
        self._docs.append(row)
        self._chunks += map(tuple, document.chunks)
        self._hashes += document.hashes
        self._same_as += document.same_as
        for chunk in document.chunks:
            # Together with the same in require_unicode, and a look-up less for new documents: 8 %
            # more chunks a second in a first ingest over Ray.
            text = chunk.text
            self.text_bytes += len(text) if text.isascii() else len(text.encode())

    def text_hashes(self) -> bytes:
        """16 bytes for each chunk, in the order of the rows."""
        return b"".join(self._hashes)

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Document rows and chunk rows, in the order of adding."""
        ids, keys, deleted, fingerprints, sizes, *others = _columns(
            self._docs, len(DOCS_SCHEMA) - 1
        )
        counts = np.array(sizes, np.int32)
        firsts = np.cumsum(counts, dtype=np.int32) - counts
        docs = [ids, keys, deleted, fingerprints, firsts, counts, *others]
        doc_rows = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        indexes = np.arange(len(doc_rows), dtype=np.int32) - np.repeat(firsts, counts)
        chunks = [
            doc_rows,
            indexes,
            *_columns(self._chunks, len(Chunk._fields)),
            self._hashes,
            *_columns(self._same_as, 2),
        ]
        return _table(docs, DOCS_SCHEMA), _table(chunks, CHUNKS_SCHEMA)


def _columns(rows: Sequence[tuple[object, ...]], count: int) -> list[Sequence[object]]:
    return list(zip(*rows, strict=True)) if rows else [()] * count


def _table(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def merged_metadata(of_source: str, parsed: ParsedDocument) -> str:
    """Metadata found in the document under what the source says; the source wins."""
    if not parsed.metadata:
        return of_source
    return canonical_metadata({**parsed.metadata, **orjson.loads(of_source)})


class StoredDocuments:
    """Documents of one shard as they stand in their segments; keeps the segments read last."""

    def __init__(self, layer: ChunkLayer, shard: int) -> None:
        self._layer = layer
        self._shard = shard
        # Many documents of a few segments are asked for.
        self._segment = lru_cache(maxsize=2)(self._read)

    def read(self, doc_id: str, entry: LedgerEntry) -> DraftedDocument:
        """A document, every chunk referring to the vector that it has there.

        Args:
            doc_id: of the document.
            entry: of the ledger; says which segment.
        """
        rows, docs, runs, chunks = self._segment(entry.segment)
        row = rows[doc_id]
        document = docs.slice(row, 1).to_pylist()[0]
        first = document["first_chunk"]
        stored, hashes = chunks_of(chunks.slice(first, entry.chunk_count))
        return DraftedDocument(
            doc_id=doc_id,
            fingerprint=entry.fingerprint,
            uri=document["uri"],
            metadata=document["metadata"],
            chunks=stored,
            hashes=hashes,
            same_as=[(entry.segment, first + at) for at in range(len(stored))],
            previous=entry,
            run=runs[row],
        )

    def _read(self, number: int) -> tuple[dict[str, int], pa.Table, list[str], pa.Table]:
        """Rows by id, document rows, the runs that cut them, and chunk rows."""
        docs, chunks, _ = self._layer.rows(SegmentKey(self._shard, number))
        rows = {doc_id: row for row, doc_id in enumerate(docs.column("doc_id").to_pylist())}
        return rows, docs, runs_of(docs), chunks


def chunks_of(rows: pa.Table) -> tuple[list[Chunk], list[bytes]]:
    """Chunk rows of a segment as chunks, with the hashes of their texts."""
    records = rows.to_pylist()
    chunks = [
        Chunk(
            text=record["text"],
            start=record["start"],
            end=record["end"],
            token_count=record["token_count"],
            headings=tuple(record["headings"]),
            truncated=record["truncated"],
        )
        for record in records
    ]
    return chunks, [record["text_hash"] for record in records]
