"""Is the index in line with its source? By fingerprints, without parsing anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from embedmill.document import RawDocument, content_fingerprint, documents_of
from embedmill.ledger import Ledger, doc_ids_of
from embedmill.parser import Parser
from embedmill.segment import ChunkLayer
from embedmill.sharding import ShardPlan, doc_key
from embedmill.source import Source


@dataclass(frozen=True, slots=True)
class Drift:
    """A document whose place in the index differs from the source.

    Attributes:
        kind: ``not-ingested``, ``changed-at-source`` or ``gone-from-source``.
        doc_id: of the document.
        uri: where it stands in the source, "" when it is gone.
    """

    kind: Literal["not-ingested", "changed-at-source", "gone-from-source"]
    doc_id: str
    uri: str


def drifts(source: Source, plan: ShardPlan, chunks: ChunkLayer, parser: Parser) -> Iterator[Drift]:
    """Compare the whole source with the ledgers; rows that cannot be read are passed over.

    Args:
        source: of the index.
        plan: its shards.
        chunks: whose ledgers are compared.
        parser: of an ingest; it parses nothing here.

    Raises:
        SourceError: the source cannot be read to its end.
    """
    ledgers = {shard: Ledger.fold(chunks, shard)[0] for shard in range(plan.shard_count)}
    for split in source.splits():
        for block in source.read(split):
            for document in documents_of(block):
                if document.doc_id:
                    fallback = parser.fallback_for(document.content or b"")
                    fingerprint = content_fingerprint(document, fallback)
                    ledger = ledgers[plan.shard_of(document.doc_id)]
                    yield from _drift(document, fingerprint, ledger)
    for shard, ledger in ledgers.items():
        for doc_id, _, _ in doc_ids_of(chunks, shard, ledger.unseen()):
            yield Drift("gone-from-source", doc_id, "")


def _drift(document: RawDocument, fingerprint: bytes, ledger: Ledger) -> Iterator[Drift]:
    key = doc_key(document.doc_id)
    entry = ledger.get(key)
    if not ledger.see(key) or document.error_code is not None:
        return
    if entry is None:
        yield Drift("not-ingested", document.doc_id, document.uri)
    elif entry.fingerprint != fingerprint:
        yield Drift("changed-at-source", document.doc_id, document.uri)
