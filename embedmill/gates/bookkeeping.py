"""Gates about the books: is everything applied, and does the store hold what the ledger says?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from embedmill.document import record_id
from embedmill.errors import RefusedError, TransientError
from embedmill.gate import GateResult, verdict
from embedmill.gates.subject import Subject
from embedmill.ledger import Ledger
from embedmill.open_letters import open_letters
from embedmill.plain_numbers import number_of
from embedmill.segment import SegmentKey
from embedmill.vector_store import finish_collection

_WAY_OUT = (
    "see which with: embedmill audit -c SETTINGS, put it right with: embedmill audit --repair "
    "-c SETTINGS"
)


@dataclass(slots=True)
class LedgerBooks:
    """What the layers say of a version.

    Attributes:
        documents: live.
        chunks: of the live documents.
        records: that the applied layer counts.
        missing_vectors: segments without vectors.
        not_applied: segments that the store has not confirmed.
        segments: that hold live documents, by shard.
    """

    documents: int = 0
    chunks: int = 0
    records: int = 0
    missing_vectors: int = 0
    not_applied: int = 0
    segments: dict[int, list[int]] = field(default_factory=dict)


def books_of(subject: Subject) -> LedgerBooks:
    """Fold the ledgers of all shards, one after the other."""
    books = LedgerBooks()
    chunks, applied_layer = subject.chunks, subject.applied
    vectors = {shard: set(found) for shard, found in subject.vectors.committed().items()}
    applied = applied_layer.committed()
    for shard, numbers in sorted(chunks.committed().items()):
        done = applied.get(shard, [])
        last = done[-1] if done else -1
        books.missing_vectors += len(set(numbers) - vectors.get(shard, set()))
        books.not_applied += sum(number > last for number in numbers)
        books.records += applied_layer.read(SegmentKey(shard, last)).records if done else 0
        ledger, _ = Ledger.fold(chunks, shard)
        live = ledger.live_segments()
        books.documents += len(ledger)
        books.chunks += sum(live.values())
        books.segments[shard] = sorted(number for number, count in live.items() if count)
    return books


def applied_gate(books: LedgerBooks) -> GateResult:
    """Every segment has vectors and is confirmed by the store."""
    left = books.missing_vectors + books.not_applied
    figures = {"missing_vectors": books.missing_vectors, "not_applied": books.not_applied}
    message = "every segment has vectors and is in the store"
    if left:
        message = (
            f"without vectors: {number_of(books.missing_vectors, 'segment')}; not in the store: "
            f"{books.not_applied}; run the same command again to fill what is missing"
        )
    return GateResult("applied", verdict(good=not left), figures, {}, message)


def records_gate(subject: Subject, books: LedgerBooks, *, most_ids: float = math.inf) -> GateResult:
    """The collection has as many records as the ledger says, under the same ids.

    The ids are compared by their sum and their exclusive or, so that memory does not grow with
    them; two different sets of derived ids agree in both with a probability of 2**-128.

    Args:
        subject: the candidate.
        books: of its ledger.
        most_ids: above so many records their number alone is compared.
    """
    if books.records > most_ids:
        return _counted_gate(subject, books)
    stored = _Sums.of(subject.store.ids(subject.version.collection))
    counted = subject.store.count(subject.version.collection)
    expected = _Sums.of(_expected_ids(subject, books))
    figures = {"expected": expected.count, "counted": counted, "ids": stored.count}
    if stored == expected and counted == expected.count:
        message = f"{number_of(counted, 'record')}, the ids of the ledger"
        return GateResult("records", "passed", figures, {}, message)
    found = f"the ledger has {number_of(expected.count, 'record')}, the store counts {counted:,}"
    if counted == expected.count:
        found += ", but they are not the same"
    message = f"{found}; {_WAY_OUT}"
    return GateResult("records", "failed", figures, {}, message)


def _counted_gate(subject: Subject, books: LedgerBooks) -> GateResult:
    counted = subject.store.count(subject.version.collection)
    figures = {"expected": books.records, "counted": counted}
    message = f"{number_of(counted, 'record')}; an evaluation compares their ids as well"
    if counted != books.records:
        message = (
            f"the ledger has {number_of(books.records, 'record')}, the store counts {counted:,}; "
            f"{_WAY_OUT}"
        )
    return GateResult("records", verdict(good=counted == books.records), figures, {}, message)


@dataclass(slots=True)
class _Sums:
    """What many ids add up to."""

    count: int = 0
    total: int = 0
    xor: int = 0

    @classmethod
    def of(cls, ids: Iterable[UUID]) -> _Sums:
        sums = cls()
        for record in ids:
            value = record.int
            sums.count += 1
            sums.total = (sums.total + value) & (2**128 - 1)
            sums.xor ^= value
        return sums


def _expected_ids(subject: Subject, books: LedgerBooks) -> Iterator[UUID]:
    """Ids of the records that the live documents must have."""
    # When nothing was refused, the applied files need not be read.
    complete = books.records == books.chunks
    for shard, numbers in books.segments.items():
        ledger, _ = Ledger.fold(subject.chunks, shard)
        for number in numbers:
            key = SegmentKey(shard, number)
            lost = set() if complete else _lost(subject, key)
            docs = subject.chunks.docs(key, ("doc_key", "doc_id", "chunk_count", "deleted"))
            standing = ledger.documents_in(number)
            for doc in docs.to_pylist():
                if doc["doc_key"] in standing and not doc["deleted"]:
                    for index in range(doc["chunk_count"]):
                        record = record_id(doc["doc_id"], index)
                        if record not in lost:
                            yield record


def _lost(subject: Subject, key: SegmentKey) -> set[UUID]:
    """Ids of the chunks of a segment that have no record, as their dead letters say."""
    applied = subject.applied.read_if_there(key)
    if applied is None or not applied.rejected:
        return set()
    names = subject.chunks.docs(key, ("doc_id",)).column("doc_id")
    chunks, _ = subject.chunks.chunks(key)
    places = zip(
        chunks.column("doc_row").to_pylist(), chunks.column("chunk_index").to_pylist(), strict=True
    )
    rejected = {row for row, _, _ in applied.rejected}
    return {
        record_id(names[doc].as_py(), index)
        for row, (doc, index) in enumerate(places)
        if row in rejected
    }


def dead_letters_gate(subject: Subject, books: LedgerBooks) -> GateResult:
    """Few documents and few chunks are without records."""
    limits = subject.settings.gates
    letters = open_letters(subject.workspace, subject.settings.index, subject.version)
    documents = sum(item.letter.chunk_index < 0 for item in letters)
    chunks = max(0, books.chunks - books.records)
    share = max(documents / max(1, books.documents + documents), chunks / max(1, books.chunks), 0.0)
    dead = documents + chunks
    good = dead <= limits.tolerated_dead or share <= limits.max_dead_share
    message = f"without records: {number_of(documents, 'document')}, {number_of(chunks, 'chunk')}"
    if not good:
        message += "; see why with: embedmill dlq list -c SETTINGS"
    figures = {
        "dead_documents": documents,
        "dead_chunks": chunks,
        "documents": books.documents,
        "chunks": books.chunks,
        "share": round(share, 6),
    }
    thresholds = {
        "max_dead_share": limits.max_dead_share,
        "tolerated_dead": limits.tolerated_dead,
    }
    return GateResult("dead-letters", verdict(good=good), figures, thresholds, message)


def store_ready_gate(subject: Subject) -> GateResult:
    """The collection is fit to be searched: a store that builds a graph has built it."""
    try:
        finish_collection(subject.store, subject.version.collection)
        count = subject.store.count(subject.version.collection)
    except (RefusedError, TransientError) as error:
        return GateResult("store-ready", "failed", {}, {}, f"the store is not ready: {error}")
    figures = {"records": count}
    return GateResult("store-ready", "passed", figures, {}, "the store answers, nothing is pending")
