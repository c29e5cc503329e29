"""A segment that is being filled, in memory until it is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import orjson
import pyarrow as pa

from embedmill.chunker import Chunk
from embedmill.document import canonical_metadata
from embedmill.ledger import LedgerEntry
from embedmill.parser import ParsedDocument
from embedmill.segment import CHUNKS_SCHEMA, DOCS_SCHEMA, ChunkLayer, SegmentKey
from embedmill.sharding import doc_key


@dataclass(frozen=True, slots=True)
class DraftedDocument:
    """One document row with its chunk rows.

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


@dataclass(slots=True)
class PendingSegment:
    """Rows of the next segment of a shard."""

    documents: list[DraftedDocument] = field(default_factory=list)
    chunk_count: int = 0
    text_bytes: int = 0

    def add(self, document: DraftedDocument) -> None:
        """Append a document; documents never span segments."""
        self.documents.append(document)
        self.chunk_count += len(document.chunks)
        self.text_bytes += sum(len(chunk.text.encode()) for chunk in document.chunks)

    def text_hashes(self) -> bytes:
        """16 bytes for each chunk, in the order of the rows."""
        return b"".join(digest for document in self.documents for digest in document.hashes)

    def tables(self) -> tuple[pa.Table, pa.Table]:
        """Document rows and chunk rows, in the order of adding."""
        return self._docs(), self._chunks()

    def _docs(self) -> pa.Table:
        rows = []
        first = 0
        for document in self.documents:
            before = document.previous
            rows.append(
                (
                    document.doc_id,
                    doc_key(document.doc_id),
                    document.deleted,
                    document.fingerprint,
                    first,
                    len(document.chunks),
                    -1 if before is None else before.segment,
                    0 if before is None else before.chunk_count,
                    document.uri,
                    document.metadata,
                    document.run,
                )
            )
            first += len(document.chunks)
        return _table(rows, DOCS_SCHEMA)

    def _chunks(self) -> pa.Table:
        rows = [
            (
                doc_row,
                index,
                chunk.text,
                chunk.start,
                chunk.end,
                chunk.token_count,
                list(chunk.headings),
                chunk.truncated,
                digest,
                *same,
            )
            for doc_row, document in enumerate(self.documents)
            for index, (chunk, digest, same) in enumerate(
                zip(document.chunks, document.hashes, document.same_as, strict=True)
            )
        ]
        return _table(rows, CHUNKS_SCHEMA)


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Rows whose values stand in the order of the schema."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def merged_metadata(of_source: str, parsed: ParsedDocument) -> str:
    """Metadata found in the document under what the source says; the source wins."""
    if not parsed.metadata:
        return of_source
    return canonical_metadata({**parsed.metadata, **orjson.loads(of_source)})


def stored_document(
    layer: ChunkLayer, shard: int, doc_id: str, entry: LedgerEntry
) -> DraftedDocument:
    """A document as it stands in its segment, every chunk referring to the vector it has there.

    Args:
        layer: holds the segment.
        shard: of the document.
        doc_id: of the document.
        entry: of the ledger; says which segment.
    """
    key = SegmentKey(shard, entry.segment)
    docs = layer.docs(key)
    row = docs.column("doc_id").to_pylist().index(doc_id)
    run = layer.runs(key)[row]
    document = docs.slice(row, 1).to_pylist()[0]
    first = document["first_chunk"]
    chunks, hashes = chunks_of(layer.chunks(key)[0].slice(first, entry.chunk_count))
    return DraftedDocument(
        doc_id=doc_id,
        fingerprint=entry.fingerprint,
        uri=document["uri"],
        metadata=document["metadata"],
        chunks=chunks,
        hashes=hashes,
        same_as=[(entry.segment, first + at) for at in range(len(chunks))],
        previous=entry,
        run=run,
    )


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
