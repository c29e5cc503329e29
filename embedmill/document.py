"""Documents as they travel: Arrow blocks with one schema, identities and fingerprints.

Rows that could not be read travel with the good ones (``error_code`` set), so that every input row
has exactly one outcome.
"""

from __future__ import annotations

import uuid
from hashlib import blake2b, sha1
from typing import NamedTuple

import orjson
import pyarrow as pa

# Record ids live in a namespace of their own: the uuid5 of a name nobody else uses.
RECORD_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://embedmill.invalid/record")
_NAMESPACE_BYTES = RECORD_NAMESPACE.bytes
# RFC 9562: 4 bits of a UUID say its version, 2 its variant. It prescribes SHA-1 for version 5;
# nothing here is a secret.
_UUID_5 = 5 << 76 | 0b10 << 62
_UUID_FREE = (1 << 128) - 1 - (0b1111 << 76) - (0b11 << 62)

RAW_SCHEMA = pa.schema(
    [
        # Stable identity; empty only where error_code is set and no id could be read.
        pa.field("doc_id", pa.large_string(), nullable=False),
        # The bytes as they stand in the source (tables: UTF-8 of the text); null with an error.
        pa.field("content", pa.large_binary()),
        # text/plain, text/markdown, text/html, text/x-rst, text/x-python
        pa.field("media_type", pa.string(), nullable=False),
        # JSON object, keys sorted.
        pa.field("metadata", pa.large_string(), nullable=False),
        # Where to look: "guide/a.md", "corpus.jsonl:17" (line), "t.parquet:3" (row, from 1).
        pa.field("uri", pa.large_string(), nullable=False),
        pa.field("error_code", pa.string()),
        pa.field("error_message", pa.large_string()),
        # Of the very bytes that were read (see embedmill.source.Split); null: nothing is known.
        pa.field("tag", pa.binary()),
    ]
)


class RawDocument(NamedTuple):
    """One row of :data:`RAW_SCHEMA`. A tuple: a third of a dataclass's time to make.

    Attributes:
        doc_id: stable identity within the source, exact string.
        content: bytes of the document, or None when it could not be read.
        media_type: decides the parser.
        metadata: JSON object as text.
        uri: where a person finds it.
        error_code: short word when it could not be read (``encoding``, ``json``, ``missing-id``).
        error_message: what a person should read then; None for a good row.
        tag: 16 bytes by which a listing tells that nothing has changed since; None: none does.
    """

    doc_id: str
    content: bytes | None
    media_type: str
    metadata: str
    uri: str
    error_code: str | None = None
    error_message: str | None = None
    tag: bytes | None = None


def documents_of(block: pa.Table) -> list[RawDocument]:
    """Read a block back, rows in order."""
    columns = [block.column(name).to_pylist() for name in RAW_SCHEMA.names]
    return list(map(RawDocument._make, zip(*columns, strict=True)))


def canonical_metadata(metadata: dict[str, object]) -> str:
    """JSON text with sorted keys; the caller has already reduced values to JSON types."""
    return orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS).decode()


def content_fingerprint(document: RawDocument, fallback: str = "") -> bytes:
    """16 bytes that change when anything changes that a reader of the index could see.

    Covers content, media type and metadata, each with its length in front; the uri is left out, so
    that moving a table row to another line is no change.

    Args:
        document: as its source delivers it.
        fallback: encoding that may decide its text; see ``Parser.fallback_for``.
    """
    content = document.content or b""
    media_type = document.media_type.encode()
    metadata = document.metadata.encode("utf-8", "surrogateescape")
    digest = blake2b(len(content).to_bytes(8, "big"), digest_size=16)
    digest.update(content)
    rest = (
        len(media_type).to_bytes(8, "big"),
        media_type,
        len(metadata).to_bytes(8, "big"),
        metadata,
        fallback.encode(),
    )
    digest.update(b"".join(rest))
    return digest.digest()


def text_hash(text: str) -> bytes:
    """16 bytes of blake2b over the UTF-8 text of a chunk; equal texts share a vector."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def record_id(doc_id: str, chunk_index: int) -> uuid.UUID:
    """Id of a chunk's record in every store: uuid5 of ``"{len(doc_id)}:{doc_id}:{chunk_index}"``.

    The length keeps ``("a:1", 2)`` and ``("a", ...)`` apart. Retries overwrite, never duplicate.
    """
    name = f"{len(doc_id)}:{doc_id}:{chunk_index}"
    # uuid.uuid5 would refuse lone surrogates; for all other names this is the same function.
    digest = sha1(_NAMESPACE_BYTES + name.encode("utf-8", "surrogateescape"), usedforsecurity=False)
    # Every record of every segment has one: UUID(bytes=..., version=5) takes twice the time.
    return uuid.UUID(int=int.from_bytes(digest.digest()[:16]) & _UUID_FREE | _UUID_5)
