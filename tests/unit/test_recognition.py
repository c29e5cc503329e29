"""Recognition: every object is read or known, once, whatever dies meanwhile."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_driving import run_to_end

from actors.read_worker import BlockRead
from actors.shard_worker import Drafted, Recognised
from embedmill.counts import DocumentCounts
from embedmill.executor import WorkerSpec
from embedmill.sharding import ShardPlan, doc_key
from embedmill.source import NO_TAG, Split
from embedmill.sources.listing import MARK, doc_id_of
from embedmill.testing.scripted_executor import KilledWorker, ScriptedExecutor
from pipelines import recognition
from pipelines.dispatcher import Dispatcher
from pipelines.faults import FaultPolicy
from pipelines.recognition import only_of
from pipelines.scan import READ, SHARD, Scan

PLAN = ShardPlan(5)


def path_of(number):
    return f"s3://bucket{MARK}{number}"


def tag_of(number):
    return number.to_bytes(16, "big")


@dataclass
class World:
    """Objects are numbers, each one a document; some are known by their tags."""

    workers: int
    known: set
    poison: set = field(default_factory=set)
    read: list = field(default_factory=list)

    def owner_of(self, number):
        return PLAN.shard_of(str(number)) % self.workers


class Reader:
    """Delivers two objects a block."""

    def __init__(self, world):
        self.world = world

    def read_block(self, split, block, only):
        numbers = [int(doc_id_of(path)) for path in split.paths][2 * block : 2 * block + 2]
        workers = self.world.workers
        if not numbers:
            return [BlockRead((0,) * workers, done=True), *([None] * workers)]
        self.world.read += numbers
        parts = [[n for n in numbers if self.world.owner_of(n) == w] for w in range(workers)]
        return [BlockRead(tuple(map(len, parts)), done=False), *parts]


class Owner:
    """Holds what it has met in memory; a death takes that along."""

    def __init__(self, world, worker):
        self.world, self.worker = world, worker
        self.met = []

    def recognise(self, listed):
        keys = {doc_key(str(n)): n for n in self.world.known}
        others, found = [], 0
        for at, shard in enumerate(listed.shards.tolist()):
            assert shard % self.world.workers == self.worker
            number = keys.get(listed.keys[16 * at : 16 * at + 16])
            if number is not None and listed.tags[16 * at : 16 * at + 16] == tag_of(number):
                self.meet(number)
                found += 1
            else:
                others.append(at)
        counts = DocumentCounts(read=found, unchanged=found, recognised=found)
        return Recognised(counts, np.array(others, np.int32))

    def draft(self, rows, only=None, poisoned=None):
        start, end = only or (0, len(rows))
        counts = DocumentCounts()
        for at in range(start, end):
            self.meet(rows[at])
            if at in (poisoned or {}):
                counts += DocumentCounts(read=1, dead=1)
                continue
            if rows[at] in self.world.poison:
                raise KilledWorker
            counts += DocumentCounts(read=1, added=1)
        return Drafted(counts, ())

    def meet(self, number):
        assert number not in self.met, "met twice"
        self.met.append(number)

    def finish(self):
        return Drafted(DocumentCounts(), ())


class Run:
    """One scan over some objects, in splits of three."""

    def __init__(self, world, count, clock, **executor):
        self.world, self.clock = world, clock
        self.executor = ScriptedExecutor(**executor)
        faults = FaultPolicy(self.executor, clock)
        self.dispatcher = Dispatcher(self.executor, faults)
        self.dispatcher.add_pool(READ, [WorkerSpec(Reader, (world,))] * 2)
        owners = [WorkerSpec(Owner, (world, worker)) for worker in range(world.workers)]
        self.dispatcher.add_pool(SHARD, owners)
        numbers = [range(start, min(start + 3, count)) for start in range(0, count, 3)]
        self.scan = Scan(
            self.dispatcher,
            faults,
            [
                Split(at, tuple(map(path_of, part)), b"".join(map(tag_of, part)))
                for at, part in enumerate(numbers)
            ],
            on_committed=lambda _: None,
            on_lost=lambda _: None,
            plan=PLAN,
        )

    def go(self):
        run_to_end(self.scan, self.dispatcher, self.clock)
        return self


plans = st.dictionaries(
    st.tuples(st.sampled_from([READ, SHARD]), st.integers(0, 20)),
    st.sampled_from(["die", "die-after", "fail", "fail-after"]),
    max_size=5,
)
orders = st.lists(st.integers(0, 5), min_size=1, max_size=20)


@settings(max_examples=100)
@given(
    count=st.integers(0, 25),
    known=st.sets(st.integers(0, 24)),
    poison=st.sets(st.integers(0, 24), max_size=2),
    plan=plans,
    order=orders,
    workers=st.integers(1, 3),
    at_once=st.integers(1, 12),
)
def test_every_object_is_read_or_known_once(
    new_clock, monkeypatch, count, known, poison, plan, order, workers, at_once
):
    monkeypatch.setattr(recognition, "_AT_ONCE", at_once)
    left, turn = dict(plan), iter(range(10**6))
    world = World(workers, known & set(range(count)), poison)
    run = Run(
        world,
        count,
        new_clock(),
        accident=lambda call: left.pop((call.pool, call.turn), None),
        choose=lambda _: order[next(turn) % len(order)],
    ).go()

    counts = run.scan.counts
    unknown = set(range(count)) - world.known
    assert (counts.read, counts.recognised) == (count, len(world.known))
    assert counts.added + counts.dead == len(unknown)
    assert set(world.read) == unknown
    if not plan:
        assert counts.dead == len(poison & unknown)


def test_what_is_left_of_many_splits_is_read_as_few(clock):
    world = World(2, set(range(300)) - {7, 100, 299})
    run = Run(world, 300, clock).go()
    assert world.read == [7, 100, 299]
    # Of three splits of three one object each: one split of three.
    assert [len(split.paths) for split in run.scan._recognition.splits] == [3]


def test_objects_without_a_tag_are_read(clock):
    world = World(1, {1})
    run = Run(world, 2, clock)
    split = Split(0, (path_of(0), path_of(1)), NO_TAG + tag_of(1))
    run.scan = Scan(
        run.dispatcher,
        FaultPolicy(run.executor, clock),
        [split, Split(1, (path_of(2),))],
        on_committed=lambda _: None,
        on_lost=lambda _: None,
        plan=PLAN,
    )
    assert run.go().scan.counts == DocumentCounts(read=3, added=2, unchanged=1, recognised=1)
    assert sorted(world.read) == [0, 2]


def test_for_some_documents_only_their_objects_are_read():
    tagged = [
        Split(at, tuple(map(path_of, part)), bytes(48))
        for at, part in enumerate([(0, 1, 2), (3, 4, 5)])
    ]
    assert only_of(tagged, {"1", "5"}) == [Split(0, (path_of(1), path_of(5)))]
    assert only_of(tagged, {"9"}) == []
    tables = [Split(0, ("a.jsonl",)), Split(1, ("b.jsonl",))]
    assert only_of(tables, {"9"}) == tables
