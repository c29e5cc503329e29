"""The scan: every row of the source is drafted once, in order, whatever dies meanwhile."""

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_driving import run_to_end

from actors.read_worker import BlockRead, ReadWorker
from actors.shard_worker import Drafted
from embedmill.assembly import build_source
from embedmill.counts import DocumentCounts
from embedmill.document import RAW_SCHEMA, RawDocument
from embedmill.draft_outcome import Committed
from embedmill.errors import SourceError, StopRunError, TransientError
from embedmill.executor import WorkerSpec
from embedmill.segment import SegmentKey
from embedmill.source import Split
from embedmill.testing.scripted_executor import KilledWorker, ScriptedExecutor
from pipelines.dispatcher import Dispatcher
from pipelines.faults import FaultPolicy
from pipelines.scan import READ, SHARD, Scan


@dataclass
class World:
    """The source, and what the pretending workers have committed.

    A row is a number; it belongs to the worker that it names modulo the workers. A worker commits
    its rows in pairs, as a segment of its only shard.
    """

    splits: list
    workers: int
    poison: set = field(default_factory=set)
    segments: dict = field(default_factory=dict)
    read: list = field(default_factory=list)
    gone: set = field(default_factory=set)


class Reader:
    def __init__(self, world):
        self.world = world

    def read_block(self, split, number, only):
        self.world.read.append((split.number, number))
        if split.number in self.world.gone:
            raise SourceError(f"{split.paths[0]} is gone")
        blocks = self.world.splits[split.number]
        workers = self.world.workers
        if number >= len(blocks):
            return [BlockRead((0,) * workers, done=True), *([None] * workers)]
        parts = [[row for row in blocks[number] if row % workers == w] for w in range(workers)]
        return [BlockRead(tuple(map(len, parts)), done=False), *parts]


class Drafter:
    def __init__(self, world, worker):
        self.world, self.worker = world, worker
        self.pending, self.seen = [], set()

    @property
    def committed(self):
        return self.world.segments.setdefault(self.worker, [])

    def draft(self, rows, only=None, poisoned=None):
        start, end = only or (0, len(rows))
        counts, committed = DocumentCounts(), []
        known = {row for segment in self.committed for row in segment}
        for at in range(start, end):
            row = rows[at]
            assert row not in self.seen, "drafted twice by one worker"
            self.seen.add(row)
            if at in (poisoned or {}):
                counts += DocumentCounts(read=1, dead=1)
                continue
            if row in self.world.poison:
                raise KilledWorker
            counts += DocumentCounts(read=1, added=1)
            if row not in known:
                self.pending.append(row)
            if len(self.pending) == 2:
                committed.append(self.commit())
        return Drafted(counts, tuple(committed))

    def commit(self):
        self.committed.append(self.pending)
        self.pending = []
        return Committed(SegmentKey(self.worker, len(self.committed) - 1), b"")

    def finish(self):
        return Drafted(DocumentCounts(), (self.commit(),) if self.pending else ())


class Run:
    """One scan over a world. Segments are announced when they are reported or recovered."""

    def __init__(self, splits, clock, *, workers=2, readers=2, poison=(), **executor):
        self.world = World(splits, workers, set(poison))
        self.clock = clock
        self.executor = ScriptedExecutor(**executor)
        faults = FaultPolicy(self.executor, clock)
        self.dispatcher = Dispatcher(self.executor, faults)
        self.dispatcher.add_pool(READ, [WorkerSpec(Reader, (self.world,))] * readers)
        self.dispatcher.add_pool(
            SHARD, [WorkerSpec(Drafter, (self.world, worker)) for worker in range(workers)]
        )
        self.announced = []
        self.scan = Scan(
            self.dispatcher,
            faults,
            [Split(n, (f"file{n}",)) for n in range(len(splits))],
            on_committed=lambda committed: self.announced.append(committed.key),
            on_lost=self.recover,
        )

    def recover(self, worker):
        for number in range(len(self.world.segments.get(worker, []))):
            key = SegmentKey(worker, number)
            if key not in self.announced:
                self.announced.append(key)

    def go(self):
        run_to_end(self.scan, self.dispatcher, self.clock)
        return self

    def rows(self, worker):
        return [row for segment in self.world.segments.get(worker, []) for row in segment]


def cut(sizes):
    """Rows in splits of blocks, of the given sizes."""
    splits, at = [], 0
    for blocks in sizes:
        splits.append([])
        for size in blocks:
            splits[-1].append(list(range(at, at + size)))
            at += size
    return splits, list(range(at))


shapes = st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=4)
plans = st.dictionaries(
    st.tuples(st.sampled_from([READ, SHARD]), st.integers(0, 30)),
    st.sampled_from(["die", "die-after", "fail", "fail-after"]),
    max_size=6,
)
orders = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@settings(max_examples=150)
@given(shape=shapes, plan=plans, order=orders, workers=st.integers(1, 3))
def test_every_row_is_drafted_once_and_in_order_whatever_happens(
    new_clock, shape, plan, order, workers
):
    splits, rows = cut(shape)
    left, turn = dict(plan), iter(range(10**6))
    run = Run(
        splits,
        new_clock(),
        workers=workers,
        accident=lambda call: left.pop((call.pool, call.turn), None),
        choose=lambda _: order[next(turn) % len(order)],
    ).go()
    counts = run.scan.counts
    assert counts.read == len(rows)
    assert counts.added + counts.dead == len(rows)
    for worker in range(workers):
        committed = run.rows(worker)
        mine = [row for row in rows if row % workers == worker]
        assert len(set(committed)) == len(committed)
        if not plan:
            assert committed == mine
        assert [k.number for k in run.announced if k.shard == worker] == list(
            range(len(run.world.segments.get(worker, [])))
        )
        # Only rows that were drafted alone when their worker died may be missing.
        assert len(set(mine) - set(committed)) <= counts.dead


@settings(max_examples=50)
@given(shape=shapes, poison=st.sets(st.integers(0, 30), max_size=8), order=orders)
def test_rows_that_end_their_workers_are_found_and_no_others(new_clock, shape, poison, order):
    splits, rows = cut(shape)
    turn = iter(range(10**6))
    run = Run(
        splits, new_clock(), poison=poison, choose=lambda _: order[next(turn) % len(order)]
    ).go()
    bad = poison & set(rows)
    assert run.scan.counts.dead == len(bad)
    assert set(run.rows(0)) | set(run.rows(1)) == set(rows) - bad


def test_a_row_in_whose_hands_a_worker_dies_once_is_not_to_blame(clock):
    """Once with its block, and once alone: that may be an accident."""
    splits, rows = cut([[6]])
    accidents = [True, True]

    def accident(call):
        if call.method != "draft":
            return None
        mine, only, _ = call.arguments
        start, end = only or (0, len(mine))
        return "die" if 2 in mine[start:end] and accidents and accidents.pop() else None

    run = Run(splits, clock, accident=accident).go()
    assert accidents == []
    assert run.scan.counts.dead == 0
    assert set(run.rows(0)) | set(run.rows(1)) == set(rows)


def test_a_source_is_not_read_to_its_end_when_nobody_is_left_to_take_it(clock):
    """With one shard worker, its death starts the scan again at once."""
    splits, _ = cut([[1] * 50])
    run = Run(splits, clock, workers=1, readers=1, poison=[0]).go()
    assert run.scan.counts.read == 50
    assert len(run.world.read) < 3 * 10 + 51


@pytest.mark.parametrize("readers", [1, 2])
def test_however_fast_readers_are_few_blocks_are_in_memory(clock, readers):
    splits, rows = cut([[2] * 20] * readers)
    held = []

    def readers_first(ready):
        drafted = sum(call.method == "draft" for call in run.executor.log)
        # Each block has a row of either worker.
        held.append(len(run.world.read) - drafted / 2)
        return next((at for at, (pool, _) in enumerate(ready) if pool == READ), 0)

    run = Run(splits, clock, readers=readers, choose=readers_first)
    assert run.go().scan.counts.added == len(rows)
    # Of each reader two that wait and one that is being read; and those that the workers have.
    assert max(held) <= 3 * readers + 3


def test_a_source_that_is_gone_in_the_middle_ends_the_scan(clock):
    splits, _ = cut([[2], [2]])
    run = Run(splits, clock, readers=1)
    run.world.gone.add(1)
    with pytest.raises(SourceError, match="file1 is gone"):
        run.go()


def test_a_file_that_always_ends_its_reader_is_named(clock, caplog):
    splits, _ = cut([[2], [2]])
    run = Run(
        splits,
        clock,
        readers=1,
        accident=lambda call: "die" if call.pool == READ and call.arguments[1] == 1 else None,
    )
    with pytest.raises(StopRunError, match="workers died and nothing was committed"):
        run.go()
    assert "the worker that died was reading block 1 of file0" in caplog.text


def test_a_worker_that_can_never_finish_ends_the_run(clock):
    splits, _ = cut([[3]])
    run = Run(splits, clock, accident=lambda call: "die" if call.method == "finish" else None)
    with pytest.raises(StopRunError, match="workers died and nothing was committed"):
        run.go()


def test_blocks_without_a_row_for_anybody_hold_nothing_up(clock):
    """As in a replay, which takes few rows of many blocks."""
    splits, _ = cut([[0] * 5, [0] * 5, [0, 0, 3]])
    assert Run(splits, clock).go().scan.counts.read == 3


def test_an_empty_source_is_finished_at_once(clock):
    assert Run([], clock).go().scan.counts == DocumentCounts()


class BrokenOnce:
    """A source whose first reading breaks off after its first block."""

    broken: ClassVar[list] = []

    def read(self, split):
        yield self.block(0)
        if not self.broken:
            self.broken.append(True)
            raise TransientError("no answer")
        yield self.block(1)

    def block(self, number):
        row = RawDocument(f"d{number}", b"x", "text/plain", "{}", f"f:{number}")
        return pa.Table.from_pylist([row._asdict()], schema=RAW_SCHEMA)


def test_a_reading_that_broke_off_is_begun_again_and_never_taken_for_the_end(
    small_index, monkeypatch
):
    monkeypatch.setattr("actors.read_worker.source_of", lambda _: BrokenOnce())
    monkeypatch.setattr(BrokenOnce, "broken", [])
    worker = ReadWorker(small_index().settings, 1)
    split = Split(0, ("f",))
    assert worker.read_block(split, 0)[0].rows == (1,)
    with pytest.raises(TransientError):
        worker.read_block(split, 1)
    again = worker.read_block(split, 1)
    assert not again[0].done
    assert again[1].column("doc_id").to_pylist() == ["d1"]
    assert worker.read_block(split, 2)[0].done


def test_a_new_reader_goes_on_where_the_dead_one_was(small_index, many_parts):
    index = small_index()
    index.write({f"d{n}": "x" for n in range(10)})
    split = index_splits(index)[0]
    first = ReadWorker(index.settings, 1)
    first.read_block(split, 0)
    second = ReadWorker(index.settings, 1)
    block = second.read_block(split, 1)[1]
    assert block.column("doc_id").to_pylist() == ["d4", "d5", "d6", "d7"]


def index_splits(index):
    return build_source(index.settings).splits()


def test_rows_are_parted_by_the_worker_that_owns_their_shard(small_index):
    index = small_index(shard_count=5)
    index.write([{"id": f"d{n}", "text": "x"} for n in range(20)] + [{"text": "no id"}])
    read, *parts = ReadWorker(index.settings, 3).read_block(index_splits(index)[0], 0)
    assert sum(read.rows) == 21
    for worker, part in enumerate(parts):
        assert read.rows[worker] == part.num_rows
        assert {shard % 3 for shard in part.column("shard").to_pylist()} == {worker}


def test_only_the_rows_that_are_asked_for_are_taken(small_index):
    index = small_index()
    index.write([{"id": "a", "text": "x"}, {"id": "b", "text": "x"}, {"text": "no id"}])
    wanted = frozenset({"b", "rows0.jsonl:3"})
    _, part = ReadWorker(index.settings, 1).read_block(index_splits(index)[0], 0, wanted)
    assert part.column("uri").to_pylist() == ["rows0.jsonl:2", "rows0.jsonl:3"]
