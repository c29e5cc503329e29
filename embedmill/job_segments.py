"""Segments that wait for vectors of embedding jobs: which rows to send, and when one is complete.

A text is sent once, however many segments have it and however often the process began anew: who
has a text that is in a job, safe, or about to be sent elsewhere waits for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

import pyarrow as pa

from embedmill.embedder import Vectors
from embedmill.embedding import EmbedOutcome, outcome_of
from embedmill.errors import DamagedFileError
from embedmill.job_heirs import Heirs
from embedmill.job_records import JobOutcome, JobRecords
from embedmill.job_rows import (
    DEAD_ROW,
    DROPPED,
    FLYING,
    KEPT,
    OPEN,
    SETTLED,
    RowHistory,
    Rows,
    SegmentRows,
)
from embedmill.job_staleness import Restated, unwanted
from embedmill.segment import ChunkLayer, SegmentKey, digests_in
from embedmill.segment_work import SegmentWork
from embedmill.text_index import Loan, TextIndex
from embedmill.vector_layer import EMBEDDED, VectorLayer


class WaitingSegments:
    """Segments without vectors, between their offer and the commit of their vectors."""

    def __init__(
        self,
        chunks: ChunkLayer,
        vectors: VectorLayer,
        records: JobRecords,
        history: RowHistory,
        *,
        drops_stale: bool = False,
    ) -> None:
        """Learn which rows earlier processes have paid for.

        Args:
            chunks: hold the texts.
            vectors: take the vectors.
            records: hold rows of incomplete segments.
            history: with the rows of all jobs that are not collected.
            drops_stale: whether :meth:`drop_stale` is going to be asked.
        """
        self._chunks = chunks
        self._vectors = vectors
        self._records = records
        self._history = history
        self._segments: dict[SegmentKey, SegmentRows] = {}
        self._done: dict[SegmentKey, EmbedOutcome] = {}
        self._texts = TextIndex()
        self._heirs = Heirs()
        self._borrowers: dict[SegmentKey, set[SegmentKey]] = defaultdict(set)
        # Segments that may be complete; a dictionary for its order.
        self._touched: dict[SegmentKey, None] = {}
        self._kept = records.kept_rows()
        self._lent = records.lent()
        # Segments that have paid rows and will be offered.
        self._promised: set[SegmentKey] = set()
        self._restated = Restated(chunks, vectors) if drops_stale else None
        # Rows may have become stale, or stale rows open, since that was looked at.
        self._unsifted = False
        self._promise()

    def _promise(self) -> None:
        committed = self._vectors.committed()
        finished = {SegmentKey(shard, n) for shard, some in committed.items() for n in some}
        for key in sorted((self._kept.keys() | self._lent.keys()) & finished):
            self._forget(key)
        for key in sorted((self._kept.keys() | self._history.flying.keys()) - finished):
            paid = set(self._history.flying.get(key, ()))
            for path in self._kept.get(key, ()):
                paid.update(self._records.row_numbers(path))
            try:
                table, _ = self._chunks.chunks(key)
            except DamagedFileError:
                # Whoever offers it will say so; here it only lends nothing.
                continue
            rows = sorted(paid)
            hashes = table.column("text_hash").take(pa.array(rows, pa.int64()))
            self._texts.add(key, b"".join(hashes.to_pylist()), rows)
            self._promised.add(key)

    @property
    def waiting(self) -> int:
        """Rows that are to be sent or in a job."""
        return sum(rows.unsettled for rows in self._segments.values())

    def __len__(self) -> int:
        """Segments without vectors."""
        return len(self._segments)

    def take_done(self) -> tuple[tuple[SegmentKey, EmbedOutcome], ...]:
        """Segments that have got vectors since this was asked last."""
        done, self._done = tuple(self._done.items()), {}
        return done

    def opened(self) -> list[SegmentRows]:
        """Segments with rows to be sent, in the order of their offers."""
        return [rows for rows in self._segments.values() if rows.open_count]

    def wait_for(self, rows: Rows) -> bool:
        """Whether any segment of these rows still lacks vectors."""
        return any(key in self._segments or key in self._promised for key in rows)

    def offer(self, key: SegmentKey, loans: Sequence[Loan] = ()) -> None:
        """A segment needs vectors; offering it again changes nothing.

        Args:
            key: of the segment.
            loans: rows whose text another segment had earlier in this run.
        """
        if key in self._segments or key in self._done:
            return
        table, digest = self._chunks.chunks(key)
        if self._vectors.exists(key):
            self._done[key] = outcome_of(table, self._vectors.read(key, digest), tokens=0)
            return
        hashes = b"".join(digests_in(table.column("text_hash")))
        own = [loan for loan in self._texts.add(key, hashes) if loan.source != key]
        # Earlier processes had seen more: their lenders may be complete by now.
        earlier = [*chain.from_iterable(map(self._records.loans, self._lent.get(key, ())))]
        loans = [*loans, *earlier]
        # A source that is not complete is among our own: it was offered before.
        given = [loan for loan in loans if loan.source not in self._segments]
        rows = SegmentRows.of(key, [*own, *given], table.column("token_count").to_numpy())
        waiting = self._segments.keys() | self._promised
        rows.awaited = [loan for loan in own if loan.source in waiting]
        for loan in rows.awaited:
            self._borrowers[loan.source].add(key)
        self._segments[key] = rows
        self._promised.discard(key)
        known = set(earlier)
        self._lend(key, [loan for loan in rows.loans if loan not in known])
        self._open(rows, table)
        if self._restated is not None:
            self._restated.look(key.shard)
            self._unsifted = True

    def _lend(self, key: SegmentKey, loans: Sequence[Loan]) -> None:
        """Write down loans: later processes know nothing of lenders that are complete."""
        if loans:
            paths = self._lent.setdefault(key, [])
            paths.append(self._records.lend(key, loans, more=bool(paths)))

    def _open(self, rows: SegmentRows, table: pa.Table) -> None:
        """Decide for each row of a segment whether it has to be sent."""
        wanted = set(self._work(rows, table).wanted())
        rows.awaited = [loan for loan in rows.awaited if loan.row in wanted]
        rows.state[sorted(wanted.difference(loan.row for loan in rows.awaited))] = OPEN
        self._history.apply(rows)
        for path in self._kept.get(rows.key, ()):
            rows.state[self._records.row_numbers(path)] = KEPT
        self._bequeath(rows, rows.open_among(loan.row for loan in rows.loans), table)
        self._touch(rows.key)

    def _bequeath(self, rows: SegmentRows, numbers: Sequence[int], table: pa.Table) -> None:
        """Rows whose lenders cannot lend are sent, where no other segment sends their texts."""
        if not numbers:
            return
        hashes = digests_in(table.column("text_hash"))
        loans = self._heirs.bequeath(rows, {row: hashes[row] for row in numbers})
        if loans:
            rows.loans, rows.awaited = [*rows.loans, *loans], [*rows.awaited, *loans]
            for loan in loans:
                self._borrowers[loan.source].add(rows.key)
            self._lend(rows.key, loans)
        self._touch(rows.key)

    def _disappoint(self, lender: SegmentRows) -> None:
        """Let rows that wait for a row which will have no vector wait for that no longer."""
        lost = lender.lost()
        for key in self._borrowers.get(lender.key, ()) if lost else ():
            rows = self._segments.get(key)
            opened = rows.wait_no_more(lender.key, lost) if rows is not None else ()
            if rows is not None and opened:
                self._unsifted = True
                self._bequeath(rows, opened, self._chunks.chunks(key, ("text_hash",))[0])

    def _work(self, rows: SegmentRows, table: pa.Table) -> SegmentWork:
        work = SegmentWork(table, self._vectors.dimension)
        work.reuse(rows.key.shard, rows.loans, self._chunks, self._vectors)
        return work

    def _touch(self, key: SegmentKey) -> None:
        self._touched[key] = None
        for borrower in self._borrowers.get(key, ()):
            self._touched[borrower] = None

    # What becomes of rows.

    def fly(self, sent: Rows) -> None:
        """Rows are in a job from now on."""
        for key, some in sent.items():
            self._segments[key].state[some] = FLYING

    def keep(self, job: str, key: SegmentKey, rows: Sequence[int], vectors: Vectors) -> None:
        """Complete a segment if these rows do; else put them where they are safe.

        A segment that somebody else has completed meanwhile waits for nothing any more.

        Args:
            job: key of the job, or a name for what is none.
            key: of the segment.
            rows: of the segment.
            vectors: of these rows.
        """
        if not rows:
            return
        waiting = self._segments.get(key)
        if self._vectors.exists(key):
            if waiting is not None:
                table, digest = self._chunks.chunks(key)
                self._finish(key, outcome_of(table, self._vectors.read(key, digest), tokens=0))
            return
        if waiting is not None:
            waiting.state[rows] = KEPT
            if self._is_ready(waiting) and self._complete(waiting, rows, vectors):
                return
        path = self._records.keep_rows(job, key, rows, vectors)
        kept = self._kept.setdefault(key, [])
        if path not in kept:
            kept.append(path)
        self._touch(key)

    def land(self, flown: Rows, outcome: JobOutcome) -> None:
        """A job is done: what it brought was kept, the rest is open, lonely or dead.

        Args:
            flown: all its rows.
            outcome: of the job.
        """
        self._history.remember(outcome.tried(), outcome.alone, outcome.dead)
        for shard, number, row, code, message in outcome.dead:
            waiting = self._segments.get(SegmentKey(shard, number))
            if waiting is not None:
                waiting.bury(row, code, message)
        for key, some in flown.items():
            waiting = self._segments.get(key)
            if waiting is None:
                self._history.land(key, some)
                continue
            waiting.alone[list(outcome.alone.get(key, ()))] = True
            waiting.land(some)
            self._touch(key)
        self._unsifted = True

    def drop_stale(self) -> dict[SegmentKey, set[int]]:
        """Let go of rows that nobody wants any more, and complete what lacks nothing else.

        Returns:
            The unwanted rows that are in jobs; empty when nothing has changed since the last call.
        """
        if self._restated is None or not self._unsifted:
            return {}
        self._unsifted = False
        flying = {}
        for key, stale in unwanted(self._segments, self._restated, self._chunks).items():
            rows = self._segments[key]
            rows.drop(stale)
            self._touch(key)
            in_jobs = rows.flying(stale)
            if len(in_jobs):
                flying[key] = set(in_jobs.tolist())
        self.settle()
        return flying

    def texts(self, rows: SegmentRows, numbers: Sequence[int]) -> list[str]:
        """Texts of some rows of a segment."""
        column = self._chunks.chunks(rows.key)[0].column("text")
        texts: list[str] = column.take(pa.array(numbers, pa.int64())).to_pylist()
        return texts

    # When segments are complete.

    def settle(self, touched: Iterable[SegmentRows] = ()) -> None:
        """Commit every segment that is complete; one that is may complete its borrowers.

        Args:
            touched: segments of which rows may have died.
        """
        for rows in touched:
            self._touch(rows.key)
        while self._touched:
            key = next(iter(self._touched))
            del self._touched[key]
            waiting = self._segments.get(key)
            if waiting is not None:
                self._disappoint(waiting)
                if self._is_ready(waiting):
                    self._complete(waiting)

    def release(self) -> None:
        """Nothing is on its way any more: the first segment waits for no lender any longer."""
        rows = next(iter(self._segments.values()))
        rows.awaited = ()
        self._touch(rows.key)
        self.settle()

    def _is_ready(self, rows: SegmentRows) -> bool:
        """Nothing of the segment is to be sent, in a job, or waiting for a lender."""
        if rows.unsettled:
            return False
        return all(self._lends(loan) for loan in rows.awaited if rows.state[loan.row] == SETTLED)

    def _lends(self, loan: Loan) -> bool:
        source = self._segments.get(loan.source)
        if source is None:
            return loan.source not in self._promised
        return bool(source.state[loan.source_row] in (KEPT, DEAD_ROW, DROPPED))

    def _complete(
        self, rows: SegmentRows, fresh: Sequence[int] = (), vectors: Vectors | None = None
    ) -> bool:
        """Gather a segment's vectors and commit them; False when a row turns out to be open.

        Args:
            rows: of the segment.
            fresh: rows whose vectors are at hand.
            vectors: of these.
        """
        key = rows.key
        table, digest = self._chunks.chunks(key)
        work = self._work(rows, table)
        for row, vector in self._kept_vectors(key):
            work.fill(row, vector)
        for at, row in enumerate(fresh):
            assert vectors is not None
            work.fill(row, vectors[at])
        for row, reason in rows.dead.items():
            work.bury(row, *reason)
        for row in (rows.state == DROPPED).nonzero()[0]:
            work.supersede(int(row))
        self._borrow(rows, work)
        work.spread()
        wanted = work.wanted()
        if wanted:
            # A lender could not lend after all; what others keep is still borrowed.
            rows.awaited = [loan for loan in rows.awaited if loan.row not in wanted]
            rows.state[wanted] = OPEN
            self._bequeath(rows, wanted, table)
            self._unsifted = True
            return False
        self._disappoint(rows)
        gathered = work.rows()
        if not self._vectors.commit(key, gathered, digest):
            gathered = self._vectors.read(key, digest)
        tokens = int(rows.tokens[gathered.origin == EMBEDDED].sum())
        self._finish(key, outcome_of(table, gathered, tokens=tokens))
        return True

    def _finish(self, key: SegmentKey, outcome: EmbedOutcome) -> None:
        """A segment has its vectors."""
        self._done[key] = outcome
        del self._segments[key]
        self._touch(key)
        self._forget(key)

    def _forget(self, key: SegmentKey) -> None:
        """Of a segment that is complete nothing is kept beside its vectors."""
        self._records.forget([*self._kept.pop(key, []), *self._lent.pop(key, [])])
        if self._restated is not None:
            self._restated.forget(key)

    def _kept_vectors(self, key: SegmentKey) -> Iterable[tuple[int, Vectors]]:
        for path in self._kept.get(key, ()):
            yield from zip(*self._records.read_rows(path, self._vectors.dimension), strict=True)

    def _borrow(self, rows: SegmentRows, work: SegmentWork) -> None:
        """Take vectors that are safe from lenders that are not complete yet."""
        by_source: dict[SegmentKey, list[Loan]] = {}
        for loan in rows.awaited:
            if loan.source in self._segments and rows.state[loan.row] == SETTLED:
                by_source.setdefault(loan.source, []).append(loan)
        for source, loans in by_source.items():
            hashes = self._chunks.chunks(source, ("text_hash",))[0].column("text_hash")
            vectors = dict(self._kept_vectors(source))
            for loan in loans:
                if loan.source_row in vectors:
                    text_hash = hashes[loan.source_row].as_py()
                    work.borrow(loan.row, text_hash, vectors[loan.source_row])
