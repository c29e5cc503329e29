"""Owns shards: their ledgers, and their next chunk segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embedmill.assembly import Layers, build_parser, chunker_of
from embedmill.chunker import Chunker
from embedmill.compacting import Compaction
from embedmill.counts import DocumentCounts
from embedmill.dead_letter import write_letters
from embedmill.document import documents_of
from embedmill.draft_outcome import Committed, DraftOutcome
from embedmill.drafting import ShardDrafter
from embedmill.errors import TransientError
from embedmill.ledger import Ledger
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey, digests_in


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a call did, in keys and counts.

    Attributes:
        counts: documents.
        committed: segments that now exist, in order.
        chunks: of the added and changed documents.
    """

    counts: DocumentCounts
    committed: tuple[Committed, ...]
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a worker's shards hold.

    Attributes:
        documents: that have not been deleted.
        chunks: of these.
    """

    documents: int
    chunks: int

    def __add__(self, other: Standing) -> Standing:
        """Both together."""
        return Standing(self.documents + other.documents, self.chunks + other.chunks)


@dataclass(frozen=True, slots=True)
class ShardTotals:
    """Sizes of a worker's shards after a scan.

    Attributes:
        documents: in the ledgers, new ones included.
        unseen: of these, what the scan has not met.
        chunks: of all documents, unseen ones included.
    """

    documents: int
    unseen: int
    chunks: int


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """What a stored segment holds.

    Attributes:
        hashes: of its texts: 16 bytes for each chunk row, in order.
        stale: document rows with chunks that a later segment has otherwise, or has deleted.
        live: the chunk rows of the other documents, ascending; None: all rows.
    """

    hashes: bytes
    stale: frozenset[int]
    live: npt.NDArray[np.int32] | None


@dataclass(frozen=True, slots=True)
class Listed:
    """Documents of a worker's shards as a listing has them, none of them read.

    Attributes:
        shards: of each.
        keys: 16 bytes of each, one after the other.
        tags: likewise.
    """

    shards: npt.NDArray[np.int32]
    keys: bytes
    tags: bytes


@dataclass(frozen=True, slots=True)
class Recognised:
    """Which of them need not be read.

    Attributes:
        counts: of these.
        others: positions of the others.
    """

    counts: DocumentCounts
    others: npt.NDArray[np.int32]


class ShardWorker:
    """Drafts the documents of its shards: every shard whose number modulo the workers is its own.

    One worker owns a shard at a time; a second writer collides at the next segment number.
    """

    def __init__(
        self, context: RunContext, worker: int, workers: int, starts: Mapping[int, int] | None
    ) -> None:
        """Open nothing yet; a shard's ledger is folded when its first document arrives.

        Args:
            context: of the run.
            worker: its number.
            workers: how many there are.
            starts: first segment number of this run by shard (see ``ShardDrafter``).
        """
        self._context = context
        self._layers = Layers(context)
        self._shards = range(worker, context.settings.shard_count, workers)
        self._starts = dict(starts or {})
        self._parser = build_parser(context.settings)
        self._chunker: Chunker | None = None
        self._drafters: dict[int, ShardDrafter] = {}
        self._scanned = False
        # By shard: the ledger as stored segments say, and the next free number.
        self._folds: dict[int, tuple[Ledger, int]] = {}

    def draft(
        self,
        block: pa.Table,
        only: tuple[int, int] | None = None,
        poisoned: Mapping[int, str] | None = None,
    ) -> Drafted:
        """Draft a block of documents of this worker's shards.

        Args:
            block: ``RAW_SCHEMA`` and a column ``shard``.
            only: rows [start, end) of the block; all without it.
            poisoned: rows of the block that ended workers, with the reason.

        Raises:
            ShardOwnedElsewhereError: another run writes to this index.
        """
        start, end = only or (0, block.num_rows)
        poisoned = {row - start: why for row, why in (poisoned or {}).items()}
        taken = block.slice(start, end - start)
        documents, shards = documents_of(taken), taken.column("shard").to_numpy()
        total = DraftOutcome()
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard).tolist()
            bad = {at: poisoned[row] for at, row in enumerate(mine) if row in poisoned}
            self._add(total, self._drafter(shard).draft([documents[row] for row in mine], bad))
        return Drafted(total.counts, tuple(total.committed), total.chunks)

    def recognise(self, listed: Listed) -> Recognised:
        """Tell which documents of its shards need not be read; the scan has met these.

        Args:
            listed: that the scan has not met.
        """
        total, others = DraftOutcome(), []
        for shard in np.unique(listed.shards).tolist():
            at = np.flatnonzero(listed.shards == shard)
            keys, tags = _parts(listed.keys, at), _parts(listed.tags, at)
            outcome, unknown = self._drafter(shard).recognise(keys, tags)
            total.add(outcome)
            others.append(at[unknown])
        return Recognised(total.counts, np.concatenate(others).astype(np.int32))

    def finish(self) -> Drafted:
        """Commit what is pending in all shards; the source has been read to its end."""
        self._scanned = True
        total = DraftOutcome()
        for drafter in self._drafters.values():
            self._add(total, drafter.finish())
        return Drafted(total.counts, tuple(total.committed), total.chunks)

    def standing(self) -> Standing:
        """What its shards hold, that which is pending included."""
        ledgers = [self._drafter(shard).ledger for shard in self._shards]
        return Standing(sum(map(len, ledgers)), sum(ledger.chunk_total() for ledger in ledgers))

    def totals(self) -> ShardTotals:
        """Sizes of all its shards, whether documents arrived for them or not.

        Raises:
            TransientError: this worker has not seen the whole source (see ``remove_unseen``).
        """
        self._require_scan()
        ledgers = [self._drafter(shard).ledger for shard in self._shards]
        return ShardTotals(
            documents=sum(len(ledger) for ledger in ledgers),
            unseen=sum(ledger.unseen_count() for ledger in ledgers),
            chunks=sum(ledger.chunk_total() for ledger in ledgers),
        )

    def remove_unseen(self) -> Drafted:
        """Delete what the scan has not met.

        Raises:
            TransientError: this worker took the place of one that died after the scan; it has seen
                nothing, and everything would look deleted.
        """
        self._require_scan()
        total = DraftOutcome()
        for shard in self._shards:
            self._add(total, self._drafter(shard).remove_unseen())
        return Drafted(total.counts, tuple(total.committed), total.chunks)

    def redraft(self, doc_ids: Mapping[int, Sequence[str]]) -> Drafted:
        """Send documents through the layers again from their stored chunks.

        Args:
            doc_ids: by shard, which must be this worker's.
        """
        total = DraftOutcome()
        for shard, wanted in doc_ids.items():
            self._add(total, self._drafter(shard).redraft(wanted))
        return Drafted(total.counts, tuple(total.committed), total.chunks)

    def text_hashes(self, keys: Sequence[SegmentKey]) -> list[bytes]:
        """16 bytes for every chunk row of stored segments of its shards, in order."""
        return [_hashes_in(self._layers.chunks.chunks(key, ("text_hash",))[0]) for key in keys]

    def stored_texts(self, keys: Sequence[SegmentKey]) -> list[StoredTexts]:
        """What stored segments hold, and which of it is superseded by now.

        Args:
            keys: of segments of its shards.
        """
        return [self._stored_texts(key) for key in keys]

    def _stored_texts(self, key: SegmentKey) -> StoredTexts:
        docs, chunks, _ = self._layers.chunks.rows(
            key, ("doc_row", "text_hash"), ("doc_key", "chunk_count")
        )
        standing = self._ledger(key).documents_in(key.number)
        names, counts = digests_in(docs.column("doc_key")), docs.column("chunk_count").to_pylist()
        stale = [
            row
            for row, (name, count) in enumerate(zip(names, counts, strict=True))
            if count and name not in standing
        ]
        hashes = _hashes_in(chunks)
        if not stale:
            return StoredTexts(hashes, frozenset(), None)
        live = np.flatnonzero(~np.isin(chunks.column("doc_row").to_numpy(), stale))
        return StoredTexts(hashes, frozenset(stale), live.astype(np.int32))

    def _ledger(self, key: SegmentKey) -> Ledger:
        """A fold of the shard that knows this segment; others commit segments meanwhile."""
        found = self._folds.get(key.shard)
        if found is None or found[1] <= key.number:
            # Of one shard at a time: segments are asked for shard by shard.
            self._folds = {key.shard: Ledger.fold(self._layers.chunks, key.shard)}
            found = self._folds[key.shard]
        return found[0]

    def compact(self, spare: int) -> Compaction:
        """Compact its shards where that is worth it; everything must be applied.

        Args:
            spare: see ``ShardCompactor.compact``.

        Returns:
            The sum over the shards that were compacted.
        """
        self._drafters.clear()
        total = Compaction(0, 0)
        for shard in self._shards:
            done = self._layers.compactor(self._context, shard).compact(spare=spare)
            if done is not None:
                total += done
        return total

    def finish_copies(self) -> None:
        """Finish what an interrupted compaction of its shards left half done."""
        for shard in self._shards:
            self._layers.compactor(self._context, shard).finish_copies()

    def _require_scan(self) -> None:
        if not self._scanned:
            raise TransientError(
                "a shard worker died after the scan; nothing was deleted",
                hint="run the same command again",
            )

    def _made_chunker(self) -> Chunker:
        """The chunker, made for the first document that needs it: a tokenizer takes 0.1 s."""
        if self._chunker is None:
            self._chunker = chunker_of(self._context.settings, self._context.chunking)
        return self._chunker

    def _drafter(self, shard: int) -> ShardDrafter:
        if shard not in self._drafters:
            self._drafters[shard] = ShardDrafter(
                self._context,
                self._layers.chunks,
                shard,
                parser=self._parser,
                chunker=self._made_chunker,
                readings=self._layers.readings(shard),
                run_start=self._starts.get(shard),
            )
        return self._drafters[shard]

    def _add(self, total: DraftOutcome, outcome: DraftOutcome) -> None:
        write_letters(
            self._layers.workspace,
            self._context.settings.index,
            self._context.run,
            outcome.letters,
        )
        total.add(outcome)


def _parts(joined: bytes, at: npt.NDArray[np.intp]) -> list[bytes]:
    return [joined[16 * n : 16 * n + 16] for n in at.tolist()]


def _hashes_in(chunks: pa.Table) -> bytes:
    return b"".join(digests_in(chunks.column("text_hash")))
