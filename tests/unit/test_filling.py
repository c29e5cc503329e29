"""Filling the layers after the chunks, with workers that only pretend."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.embed_worker import Embedded
from embedmill.applying import AppliedSegments
from embedmill.counts import ChunkCounts, RateUse, RecordCounts, WriteCounts
from embedmill.errors import (
    DamagedFileError,
    OutcomeUnknownError,
    RateLimitedError,
    StopRunError,
    TransientError,
)
from embedmill.executor import WorkerSpec
from embedmill.segment import SegmentKey
from embedmill.testing.scripted_executor import KilledWorker, ScriptedExecutor
from embedmill.text_index import Loan
from pipelines.apply_stage import WRITE, ApplyStage
from pipelines.dispatcher import Dispatcher
from pipelines.embed_stage import EMBED, EmbedStage
from pipelines.faults import MAX_TRIES, FaultPolicy


@dataclass
class World:
    """What the pretending workers have done, and what goes wrong with them."""

    embedded: list = field(default_factory=list)
    applied: list = field(default_factory=list)
    probed: list = field(default_factory=list)
    poison: dict = field(default_factory=dict)
    errors: list = field(default_factory=list)
    failures: dict = field(default_factory=dict)
    writes: list = field(default_factory=list)
    proofs: int = 0
    trusted: set = field(default_factory=set)


class Embedder:
    def __init__(self, world):
        self.world = world

    def prove(self):
        if self.world.errors:
            raise self.world.errors.pop(0)
        self.world.proofs += 1

    def embed(self, key, poisoned, loans, stale, trusted):
        self.world.trusted.add(trusted)
        if self.world.errors:
            raise self.world.errors.pop(0)
        if set(self.world.poison.get(key, ())) - set(poisoned):
            raise KilledWorker
        self.world.embedded.append((key, frozenset(poisoned)))
        counts = ChunkCounts(chunks=3, embedded=3 - len(poisoned), dead=len(poisoned))
        return Embedded(counts, RateUse(requests=1))

    def document_rows(self, key):
        return [0, 1, 2]

    def probe(self, key, row):
        self.world.probed.append((key, row))
        if row in self.world.poison.get(key, ()):
            raise KilledWorker


class Writer:
    def __init__(self, world):
        self.world = world

    def apply(self, keys, previous):
        if self.world.errors:
            raise self.world.errors.pop(0)
        self.world.writes.append([key.number for key in keys])
        done, failure = [], None
        for key in keys:
            if key in self.world.failures:
                failure = self.world.failures.pop(key)
                break
            self.world.applied.append((key, previous))
            done.append(RecordCounts(upserted=3))
            previous = key.number
        return AppliedSegments(tuple(done), failure), WriteCounts(requests=1)


class Stages:
    """Both stages over one executor, with a clock that only sleeping moves."""

    def __init__(self, clock, workers=2, at_a_time=1, **executor):
        self.clock, self.world = clock, World()
        self.executor = ScriptedExecutor(**executor)
        faults = FaultPolicy(self.executor, clock)
        self.dispatcher = Dispatcher(self.executor, faults)
        embedder = WorkerSpec(Embedder, (self.world,), at_a_time=at_a_time)
        self.dispatcher.add_pool(EMBED, [embedder] * workers)
        self.dispatcher.add_pool(WRITE, [WorkerSpec(Writer, (self.world,))] * workers)
        self.apply = ApplyStage(self.dispatcher, faults, workers)
        self.embed = EmbedStage(self.dispatcher, faults, workers, self.apply.ready)

    def add(self, *keys):
        for key in keys:
            self.apply.announce(key)
            self.embed.add(key)

    def run(self):
        while not (self.embed.idle and self.apply.idle):
            self.embed.pump()
            self.apply.pump()
            if self.dispatcher.in_flight:
                self.dispatcher.step(0)
            else:
                assert self.embed.retrying or self.apply.retrying, "it hangs"
                self.clock.sleep(0.5)


def keys(shards, numbers):
    return [SegmentKey(s, n) for s in range(shards) for n in range(numbers)]


def test_segments_are_embedded_once_and_applied_in_order(clock):
    stages = Stages(clock)
    stages.add(*keys(3, 4))
    stages.run()
    assert sorted(key for key, _ in stages.world.embedded) == keys(3, 4)
    assert [k for k, _ in stages.world.applied if k.shard == 1] == keys(2, 4)[4:]
    assert all(
        previous == (k.number - 1 if k.number else None) for k, previous in stages.world.applied
    )
    assert stages.apply.last_applied == {0: 3, 1: 3, 2: 3}
    assert stages.embed.counts.chunks == stages.apply.counts.upserted == 36


@given(order=st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_however_the_workers_overtake_each_other_a_shard_stays_in_order(new_clock, order):
    turn = iter(range(10**6))
    stages = Stages(new_clock(), 3, choose=lambda _: order[next(turn) % len(order)])
    stages.add(*keys(4, 3))
    stages.run()
    for shard in range(4):
        assert [k.number for k, _ in stages.world.applied if k.shard == shard] == [0, 1, 2]


def test_an_idle_worker_takes_over_from_the_one_with_the_most_to_do(clock):
    stages = Stages(clock, workers=2)
    stages.add(*keys(1, 8))
    stages.run()
    busy = {call.worker for call in stages.executor.log if call.method == "embed"}
    assert busy == {0, 1}


def test_a_borrower_waits_for_its_lender_and_is_told_where_to_take_from(clock):
    stages = Stages(clock, workers=3)
    lender, borrower = SegmentKey(0, 0), SegmentKey(1, 0)
    stages.add(lender)
    stages.apply.announce(borrower)
    loan = Loan(0, lender, 2)
    stages.embed.add(borrower, [loan])
    stages.run()
    assert [key for key, _ in stages.world.embedded] == [lender, borrower]
    calls = [call for call in stages.executor.log if call.method == "embed"]
    assert calls[1].arguments[2] == [loan]


def test_a_lender_that_has_its_vectors_is_not_waited_for(clock):
    stages = Stages(clock)
    stages.apply.announce(SegmentKey(1, 0))
    stages.embed.add(SegmentKey(1, 0), [Loan(0, SegmentKey(0, 0), 0), Loan(1, SegmentKey(1, 0), 0)])
    stages.run()
    assert len(stages.world.embedded) == 1


def test_a_document_that_ends_workers_is_found_by_trying_each(clock):
    stages = Stages(clock)
    bad = SegmentKey(0, 1)
    stages.world.poison[bad] = {1}
    stages.add(*keys(2, 3))
    stages.run()
    assert dict(stages.world.embedded)[bad] == {1}
    assert all(not poisoned for key, poisoned in stages.world.embedded if key != bad)
    assert {row for key, row in stages.world.probed if key == bad} == {0, 1, 2}


@given(
    poison=st.dictionaries(
        st.sampled_from(keys(2, 4)), st.sets(st.integers(0, 2), min_size=1), max_size=2
    ),
    order=st.lists(st.integers(0, 5), min_size=1, max_size=30),
)
def test_of_segments_embedded_at_a_time_only_what_ends_workers_is_to_blame(
    new_clock, poison, order
):
    turn = iter(range(10**6))
    stages = Stages(new_clock(), at_a_time=3, choose=lambda _: order[next(turn) % len(order)])
    stages.world.poison |= poison
    stages.add(*keys(2, 4))
    stages.run()
    found = dict(stages.world.embedded)
    assert found == {key: poison.get(key, frozenset()) for key in keys(2, 4)}
    assert {key for key, _ in stages.world.probed} == set(poison)
    # Once embedded, a segment's vectors are kept.
    assert len(stages.world.embedded) == len(found)


def test_a_segment_that_may_have_ended_a_worker_has_the_next_one_for_itself(clock):
    held = {}

    def look(call):
        if call.method in {"embed", "probe"}:
            held.setdefault(call.arguments[0], []).append(stages.dispatcher._held[EMBED, 0])

    stages = Stages(clock, workers=1, at_a_time=3, accident=look)
    bad = SegmentKey(0, 2)
    stages.world.poison[bad] = {1}
    stages.add(*keys(1, 6))
    stages.run()
    # With others; alone; its documents one by one, and again the one that ended the worker; the
    # rest of it.
    assert held[bad] == [4, 1, 1, 1, 1, 1, 1]
    assert held[SegmentKey(0, 3)] == [1]
    assert max(map(max, held.values())) == 4


def test_a_worker_takes_over_from_others_as_much_as_it_runs_at_a_time(clock):
    stages = Stages(clock, workers=2, at_a_time=3)
    # All of one shard, whose home is the other worker.
    stages.add(*[SegmentKey(1, number) for number in range(12)])
    stages.embed.pump()
    assert [stages.dispatcher._held[EMBED, worker] for worker in (0, 1)] == [3, 4]
    stages.run()
    assert len(stages.world.embedded) == 12


def test_what_was_found_out_is_not_tried_again_when_the_segment_fails_otherwise(clock):
    stages = Stages(clock, workers=1)
    bad = SegmentKey(0, 0)
    stages.world.poison[bad] = {0, 2}
    failures = iter([True])

    def fail_once_when_it_is_known(call):
        known = call.method == "embed" and call.arguments[1]
        return "fail" if known and next(failures, False) else None

    stages.executor._accident = fail_once_when_it_is_known
    stages.add(bad)
    stages.run()
    replaced = len(stages.executor.replaced)
    assert stages.world.embedded == [(bad, {0, 2})]
    # Two for the segment as a whole, two for each document.
    assert replaced == 6


@pytest.mark.parametrize(
    "error",
    [TransientError("x"), OutcomeUnknownError("x"), RateLimitedError("x", retry_after=90.0)],
)
def test_what_may_succeed_later_is_tried_again_later(clock, error):
    stages = Stages(clock)
    stages.world.errors.append(error)
    stages.add(SegmentKey(0, 0))
    stages.run()
    assert [key for key, _ in stages.world.applied] == [SegmentKey(0, 0)]
    assert clock.now >= (90.0 if isinstance(error, RateLimitedError) else 1.0)


def test_a_call_that_keeps_failing_ends_the_run_and_waits_longer_each_time(clock):
    stages = Stages(clock)
    stages.world.errors += [TransientError("still not")] * MAX_TRIES
    stages.add(SegmentKey(0, 0))
    with pytest.raises(StopRunError, match="failed 8 times; the last time: still not") as caught:
        stages.run()
    assert caught.value.code == "retries-exhausted"
    assert clock.now > 60


def test_being_asked_to_wait_is_no_failure_however_often(clock):
    stages = Stages(clock)
    stages.world.errors += [RateLimitedError("wait", retry_after=2.0)] * (3 * MAX_TRIES)
    stages.add(SegmentKey(0, 0))
    stages.run()
    assert stages.embed.idle


@pytest.mark.parametrize("error", [DamagedFileError("torn"), StopRunError("no credentials")])
def test_what_can_never_succeed_ends_the_run_at_once(clock, error):
    stages = Stages(clock)
    stages.world.errors.append(error)
    stages.add(SegmentKey(0, 0))
    with pytest.raises(type(error)):
        stages.run()


def test_a_segment_that_ends_three_writers_ends_the_run(clock):
    stages = Stages(clock, accident=lambda call: "die" if call.method == "apply" else None)
    stages.add(SegmentKey(0, 0))
    with pytest.raises(StopRunError, match=r"applying segment s0000/00000000 ended 3 writers"):
        stages.run()


def all_embedded(stages):
    while not stages.embed.idle:
        stages.embed.pump()
        stages.dispatcher.step(0)


def test_what_has_waited_for_a_writer_goes_to_it_together_and_no_more_than_eight(clock):
    stages = Stages(clock)
    stages.add(*keys(1, 11))
    all_embedded(stages)
    stages.run()
    assert stages.world.writes == [list(range(8)), [8, 9, 10]]
    assert [k.number for k, _ in stages.world.applied] == list(range(11))
    assert stages.apply.applied == 11
    assert stages.apply.counts.upserted == 33


def test_a_segment_without_vectors_ends_what_goes_together(clock):
    stages = Stages(clock)
    for key in keys(1, 4):
        stages.apply.announce(key)
    for number in (0, 1, 3):
        stages.apply.ready(SegmentKey(0, number))
    while not stages.apply.starved:
        stages.apply.pump()
        stages.dispatcher.step(0)
    assert stages.world.writes == [[0, 1]]
    assert stages.apply.waiting == 2


def test_what_was_applied_before_a_failure_counts_and_the_rest_is_tried_later(clock):
    stages = Stages(clock)
    stages.add(*keys(1, 5))
    all_embedded(stages)
    stages.world.failures[SegmentKey(0, 2)] = RateLimitedError("wait", retry_after=7.0)
    began = clock()
    stages.run()
    assert stages.world.writes == [[0, 1, 2, 3, 4], [2, 3, 4]]
    assert clock() - began >= 7.0
    assert stages.apply.last_applied == {0: 4}
    assert stages.apply.counts.upserted == 15


def test_a_failure_that_ends_the_run_leaves_what_was_applied_before_it_counted(clock):
    stages = Stages(clock)
    stages.add(*keys(1, 5))
    all_embedded(stages)
    stages.world.failures[SegmentKey(0, 2)] = StopRunError("no credentials")
    with pytest.raises(StopRunError, match="no credentials"):
        stages.run()
    assert stages.apply.counts.upserted == 6
    assert stages.apply.last_applied == {0: 1}


def test_after_the_death_of_a_writer_each_segment_goes_alone_until_it_is_past_the_first(clock):
    deaths = iter(["die"])
    stages = Stages(
        clock, accident=lambda call: next(deaths, None) if call.method == "apply" else None
    )
    stages.add(*keys(1, 4))
    all_embedded(stages)
    stages.run()
    assert stages.world.writes == [[0], [1, 2, 3]]


def test_a_shard_that_waits_for_its_next_try_holds_up_no_other(clock):
    stages = Stages(clock, workers=1)
    stages.add(*keys(2, 2))
    all_embedded(stages)
    stages.world.errors.append(TransientError("x"))
    stages.run()
    order = [key.shard for key, _ in stages.world.applied]
    assert order == [1, 1, 0, 0]


def test_workers_of_one_provider_prove_its_model_once_for_all_of_them():
    world = World()
    executor = ScriptedExecutor()
    faults = FaultPolicy(executor, lambda: 0.0)
    dispatcher = Dispatcher(executor, faults)
    dispatcher.add_pool(EMBED, [WorkerSpec(Embedder, (world,))] * 3)
    stage = EmbedStage(dispatcher, faults, 3, lambda _: None, one_model=True)
    stage.pump()
    # Nothing to embed: nothing is asked.
    assert not dispatcher.in_flight
    for number in range(6):
        stage.add(SegmentKey(number, 0))
    while not stage.idle:
        stage.pump()
        if not world.proofs:
            assert world.embedded == []
            assert dispatcher.in_flight == 1
        dispatcher.step(0)
    assert (world.proofs, world.trusted, len(world.embedded)) == (1, {True}, 6)


def test_workers_with_a_model_each_prove_it_themselves():
    world = World()
    executor = ScriptedExecutor()
    faults = FaultPolicy(executor, lambda: 0.0)
    dispatcher = Dispatcher(executor, faults)
    dispatcher.add_pool(EMBED, [WorkerSpec(Embedder, (world,))] * 2)
    stage = EmbedStage(dispatcher, faults, 2, lambda _: None)
    stage.add(SegmentKey(0, 0))
    while not stage.idle:
        stage.pump()
        dispatcher.step(0)
    assert (world.proofs, world.trusted) == (0, {False})


def test_a_proof_that_fails_for_the_moment_is_asked_for_again():
    world = World(errors=[TransientError("busy"), TransientError("busy")])
    now = [0.0]
    executor = ScriptedExecutor()
    faults = FaultPolicy(executor, lambda: now[0])
    dispatcher = Dispatcher(executor, faults)
    dispatcher.add_pool(EMBED, [WorkerSpec(Embedder, (world,))] * 2)
    stage = EmbedStage(dispatcher, faults, 2, lambda _: None, one_model=True)
    stage.add(SegmentKey(0, 0))
    while not stage.idle:
        stage.pump()
        if dispatcher.in_flight:
            dispatcher.step(0)
        else:
            assert stage.retrying
            now[0] += 10
    assert (world.proofs, len(world.embedded)) == (1, 1)
