"""Drafting, one shard: tell documents apart, parse, chunk, commit chunk segments."""

from __future__ import annotations

import logging
import string
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from embedmill.chunker import Chunk, Chunker
from embedmill.dead_letter import DeadLetter, Stage
from embedmill.document import RawDocument, content_fingerprint, text_hash
from embedmill.draft_outcome import Committed, DraftOutcome
from embedmill.earlier_chunks import EarlierChunks
from embedmill.errors import EmbedmillError, PermanentError
from embedmill.ledger import Ledger, LedgerEntry, doc_ids_of
from embedmill.parser import ParsedDocument, Parser
from embedmill.pending_segment import (
    DraftedDocument,
    PendingSegment,
    StoredDocuments,
    merged_metadata,
)
from embedmill.readings import Readings
from embedmill.run_context import RunContext, utc_now
from embedmill.segment import MAX_SEGMENT_CHUNKS, ChunkLayer, SegmentKey
from embedmill.sharding import doc_key

log = logging.getLogger(__name__)
# Nothing to see: a document of these alone has no text. Providers refuse such inputs.
_BLANK = string.whitespace + "\u00a0\u00ad\u200b\u200c\u200d\u2028\u2029\u2060\u3000\ufeff"
# Rows without chunks (deletions, empty documents) close a segment too.
_MAX_SEGMENT_DOCS = 10_000
# The first segments of a shard are small, so that embedders have work early: 64, 256, 1,024, ...
# Were each twice as large as the one before, 20,000 small documents would take a quarter more
# processor time.
_FIRST_SEGMENT, _GROWTH = 64, 4


class _Fresh(NamedTuple):
    """A new or changed document on its way."""

    document: RawDocument
    key: bytes
    fingerprint: bytes
    entry: LedgerEntry | None
    parsed: ParsedDocument
    metadata: str


class ShardDrafter:
    """Owns one shard's ledger and its unfinished segment. Not for two writers at once.

    Attributes:
        ledger: the fold of what is committed and of what is pending.
    """

    def __init__(
        self,
        context: RunContext,
        layer: ChunkLayer,
        shard: int,
        *,
        parser: Parser,
        chunker: Callable[[], Chunker],
        readings: Readings,
        run_start: int | None = None,
    ) -> None:
        """Fold the shard's ledger.

        Args:
            context: of the run.
            layer: where chunk segments go.
            shard: its number.
            parser: for changed documents.
            chunker: gives the one for changed documents; asked only where there are any.
            readings: of objects of the shard that have tags.
            run_start: first segment number that this run may have committed; documents that
                stand in such a segment count as added or changed when they are met again, after
                a worker of the same run died. None: this is the first worker of the run.
        """
        self._context = context
        self._segment_bytes = context.settings.run.segment_bytes
        self._layer = layer
        self._shard = shard
        self._parser = parser
        self._chunker = chunker
        self._readings = readings
        self.ledger, number = Ledger.fold(layer, shard)
        self._begin(number)
        self._run_start = number if run_start is None else run_start
        self._earlier = EarlierChunks(layer, shard)

    @property
    def run_start(self) -> int:
        """First segment number of this run in this shard."""
        return self._run_start

    def draft(
        self, documents: Sequence[RawDocument], poisoned: Mapping[int, str] | None = None
    ) -> DraftOutcome:
        """Take documents of this shard; commit segments as they fill up.

        Args:
            documents: in the source's order.
            poisoned: positions of documents that ended workers, with the reason; they become
                dead letters unread.
        """
        outcome = DraftOutcome()
        outcome.count(read=len(documents))
        fresh = []
        keys = [doc_key(document.doc_id) for document in documents]
        self.ledger.look_up(keys)
        for position, (document, key) in enumerate(zip(documents, keys, strict=True)):
            if self._is_dead(document, key, (poisoned or {}).get(position), outcome):
                continue
            fallback = self._parser.fallback_for(document.content or b"")
            fingerprint = content_fingerprint(document, fallback)
            if document.tag is not None:
                size = len(document.content or b"")
                self._readings.note(key, document.tag, fingerprint, size)
            entry = self.ledger.get(key)
            if entry is not None and entry.fingerprint == fingerprint:
                self._count_unchanged(entry, outcome)
                continue
            parsed = self._parse(document, outcome)
            if parsed is not None:
                fresh.append(_Fresh(document, key, fingerprint, entry, *parsed))
        for item, chunks in zip(fresh, self._chunk(fresh, outcome), strict=True):
            if chunks is not None:
                self._take(item, chunks, outcome)
        return outcome

    def recognise(
        self, keys: Sequence[bytes], tags: Sequence[bytes]
    ) -> tuple[DraftOutcome, list[int]]:
        """Take documents that are listed as they were when they were read: they are unchanged.

        Args:
            keys: of documents of this shard that the scan has not met.
            tags: with which they are listed.

        Returns:
            What was done, and the positions of the others: these have to be read.
        """
        self.ledger.look_up(keys)
        entries = list(map(self.ledger.get, keys))
        fingerprints = [b"" if entry is None else entry.fingerprint for entry in entries]
        known = self._readings.are_known(keys, tags, fingerprints)
        outcome, others = DraftOutcome(), []
        for at, (key, entry, same) in enumerate(zip(keys, entries, known, strict=True)):
            if entry is None or not same:
                others.append(at)
                continue
            self.ledger.see(key)
            self._count_unchanged(entry, outcome)
        found = len(keys) - len(others)
        outcome.count(read=found, recognised=found)
        return outcome, others

    def finish(self) -> DraftOutcome:
        """Commit what is pending."""
        outcome = DraftOutcome()
        self._commit(outcome)
        self._readings.finish(len(self.ledger))
        return outcome

    def remove_unseen(self) -> DraftOutcome:
        """Delete what the scan has not met; only after a complete scan of the whole source."""
        outcome = DraftOutcome()
        for doc_id, key, entry in doc_ids_of(self._layer, self._shard, self.ledger.unseen()):
            self.ledger.remove(key)
            outcome.count(removed=1)
            self._pending.add(DraftedDocument.deletion(doc_id, entry), key)
            if self._pending.document_count >= _MAX_SEGMENT_DOCS:
                self._commit(outcome)
        self._commit(outcome)
        return outcome

    def redraft(self, doc_ids: Sequence[str]) -> DraftOutcome:
        """Put documents in a new segment, from the chunks that are stored.

        Their good vectors are taken over; chunks that died get another try, in the vectors layer
        or in the store. A document that is no longer in the ledger is left out.
        """
        outcome = DraftOutcome()
        stored = StoredDocuments(self._layer, self._shard)
        for doc_id in doc_ids:
            key = doc_key(doc_id)
            entry = self.ledger.get(key)
            if entry is None:
                continue
            self._make_room(entry.chunk_count, outcome)
            self._pending.add(stored.read(doc_id, entry), key)
            self.ledger.put(key, entry._replace(segment=self._next, was_known=True))
            self._commit_when_full(outcome)
        self._commit(outcome)
        return outcome

    def _is_dead(
        self, document: RawDocument, key: bytes, poison: str | None, outcome: DraftOutcome
    ) -> bool:
        if document.doc_id and not self.ledger.see(key):
            name = repr(document.doc_id[:80])
            problem = "duplicate-id", f"an earlier row of the source has the id {name} too"
        elif poison is not None:
            problem = "killed-worker", poison
        elif document.error_code is not None:
            problem = document.error_code, document.error_message or ""
        else:
            return False
        self._bury("read", document, *problem, error="PermanentError", outcome=outcome)
        return True

    def _count_unchanged(self, entry: LedgerEntry, outcome: DraftOutcome) -> None:
        if entry.segment < self._run_start:
            what = "unchanged"
        else:
            what = "changed" if entry.was_known else "added"
        outcome.count_one(what, empty=entry.chunk_count == 0)

    def _parse(
        self, document: RawDocument, outcome: DraftOutcome
    ) -> tuple[ParsedDocument, str] | None:
        try:
            parsed = self._parser.parse(document.content or b"", document.media_type)
            metadata = merged_metadata(document.metadata, parsed)
        except Exception as error:  # noqa: BLE001 - the row boundary: whatever a parser raises ends one document
            self._bury_error("parse", document, error, outcome)
            return None
        for warning in parsed.warnings:
            log.warning("%s: %s", document.uri, warning)
            outcome.count(warnings=1)
        return parsed, metadata

    def _chunk(self, fresh: Sequence[_Fresh], outcome: DraftOutcome) -> list[list[Chunk] | None]:
        if not fresh:
            return []
        # Where none can be made, no document is to blame.
        chunker = self._chunker()
        try:
            return list(chunker.chunk([item.parsed for item in fresh]))
        except Exception:  # noqa: BLE001 - one by one shows which document it was, and ends that one alone
            return [self._chunk_one(item, outcome) for item in fresh]

    def _chunk_one(self, item: _Fresh, outcome: DraftOutcome) -> list[Chunk] | None:
        try:
            return self._chunker().chunk([item.parsed])[0]
        except Exception as error:  # noqa: BLE001 - the row boundary: whatever a chunker raises ends one document
            self._bury_error("chunk", item.document, error, outcome)
            return None

    def _take(self, item: _Fresh, chunks: list[Chunk], outcome: DraftOutcome) -> None:
        document = item.document
        if not item.parsed.text.strip(_BLANK):
            log.info("%s has no text", document.doc_id)
            chunks = []
        if len(chunks) > MAX_SEGMENT_CHUNKS:
            error = PermanentError(
                f"{len(chunks):,} chunks, a document may have {MAX_SEGMENT_CHUNKS:,}: split it, or "
                "let its chunks be larger (chunker.max_tokens)",
                code="too-many-chunks",
            )
            self._bury_error("chunk", document, error, outcome)
            return
        self._make_room(len(chunks), outcome)
        key, entry = item.key, item.entry
        hashes = [text_hash(chunk.text) for chunk in chunks]
        committed = entry if entry is not None and entry.segment < self._next else None
        drafted = DraftedDocument(
            doc_id=document.doc_id,
            fingerprint=item.fingerprint,
            uri=document.uri,
            metadata=item.metadata,
            chunks=chunks,
            hashes=hashes,
            same_as=self._earlier.places_of(document.doc_id, committed, hashes),
            previous=entry,
        )
        self._pending.add(drafted, key)
        known = entry is not None
        self.ledger.put(key, LedgerEntry(item.fingerprint, len(chunks), self._next, known))
        outcome.count_one("changed" if known else "added", empty=not chunks)
        outcome.chunks += len(chunks)
        self._commit_when_full(outcome)

    def _make_room(self, chunks: int, outcome: DraftOutcome) -> None:
        """Commit what is pending when so many more chunks would make the segment too large."""
        if self._pending.chunk_count + chunks > MAX_SEGMENT_CHUNKS:
            self._commit(outcome)

    def _commit_when_full(self, outcome: DraftOutcome) -> None:
        if (
            self._pending.chunk_count >= self._full_at
            or self._pending.text_bytes >= self._segment_bytes
            or self._pending.document_count >= _MAX_SEGMENT_DOCS
        ):
            self._commit(outcome)

    def _commit(self, outcome: DraftOutcome) -> None:
        if not self._pending.document_count:
            return
        key = SegmentKey(self._shard, self._next)
        self._layer.commit(key, *self._pending.tables())
        outcome.committed.append(Committed(key, self._pending.text_hashes()))
        self._begin(self._next + 1)

    def _begin(self, number: int) -> None:
        self._next = number
        self._pending = PendingSegment()
        ramp = _FIRST_SEGMENT * _GROWTH ** min(number, 8)
        self._full_at = min(self._context.settings.segment_chunks, ramp)

    def _bury_error(
        self, stage: Stage, document: RawDocument, error: Exception, outcome: DraftOutcome
    ) -> None:
        ours = isinstance(error, EmbedmillError)
        code = error.code if isinstance(error, EmbedmillError) else "unexpected"
        # The text of a foreign error may quote the document; ours never does.
        message = str(error) if ours else f"{type(error).__name__} in the {stage} step"
        if isinstance(error, EmbedmillError) and error.hint:
            message = f"{message}; {error.hint}"
        self._bury(stage, document, code, message, error=type(error).__name__, outcome=outcome)

    def _bury(
        self,
        stage: Stage,
        document: RawDocument,
        code: str,
        message: str,
        *,
        error: str,
        outcome: DraftOutcome,
    ) -> None:
        outcome.count(dead=1, unidentified=int(not document.doc_id))
        outcome.letters.append(
            DeadLetter(
                stage=stage,
                doc_id=document.doc_id,
                uri=document.uri,
                code=code,
                error=error,
                message=message,
                chunk_index=-1,
                shard=self._shard,
                segment=-1,
                attempts=1,
                run=self._context.run,
                time=utc_now(),
                version=self._context.version,
            )
        )
