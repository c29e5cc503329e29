"""Whole runs with scripted accidents: nothing is lost, nothing hangs, the counts add up."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill.errors import (
    RateLimitedError,
    ShardOwnedElsewhereError,
    StopRunError,
    TransientError,
)
from embedmill.segment import SegmentKey
from embedmill.testing.scripted_executor import KilledWorker, ScriptedExecutor
from pipelines.run_options import InterruptedRunError

POOLS = ("read", "shard", "embed", "write")


def corpus(count):
    dice = random.Random(7)
    words = [f"w{n}" for n in range(40)]
    return {
        f"doc{n:03}": " ".join(dice.choices(words, k=dice.randint(0, 14))) for n in range(count)
    }


class Plan:
    """Accidents by pool and turn, each of which happens once."""

    def __init__(self, accidents):
        self.left = {(pool, turn): kind for pool, turn, kind in accidents}
        self.methods = {"embed", "apply", "draft", "finish", "read_block", "probe", "document_rows"}

    def __call__(self, call):
        if call.method not in self.methods:
            # The driver itself asks: a death there ends the run by design.
            return None
        return self.left.pop((call.pool, call.turn), None)


def choices_of(numbers):
    """A chooser that goes through these numbers again and again."""
    at = iter(range(10**9))
    return lambda _: numbers[next(at) % len(numbers)] if numbers else 0


accidents = st.lists(
    st.tuples(
        st.sampled_from(POOLS),
        st.integers(0, 40),
        st.sampled_from(["die", "die-after", "fail", "fail-after"]),
    ),
    max_size=7,
    unique_by=lambda accident: accident[:2],
)


@settings(max_examples=25)
@given(plan=accidents, order=st.lists(st.integers(0, 7), min_size=1, max_size=30))
def test_whatever_dies_or_fails_every_document_is_accounted_for_once(
    small_index, many_parts, plan, order
):
    texts = corpus(36)
    index = small_index(run={"segment_chunks": 8, "embed_workers": 2, "shard_workers": 2})
    index.write(texts, files=3)
    executor = ScriptedExecutor(cores=8, accident=Plan(plan), choose=choices_of(order))

    report = index.ingest(executor=executor)

    assert report.documents.read == len(texts)
    assert report.documents.added + report.documents.dead == len(texts)
    assert index.documents().keys() | {x.doc_id for x in index.letters()} == texts.keys()
    assert index.ids() == index.expected_ids()
    assert report.live_records == report.stored_records == len(index.ids())
    assert index.chunks.committed() == index.vectors.committed() == index.applied.committed()
    in_order(executor.log)
    # A second run finds nothing to do but what died unread.
    again = index.ingest()
    assert again.documents.unchanged >= report.documents.added
    assert again.documents.unchanged + again.documents.added == len(texts)
    assert index.documents().keys() == texts.keys()


def in_order(log):
    """Segments of a shard are applied one after the other; what a call did not do comes again."""
    begun, offered = {}, {}
    for call in log:
        if call.method == "apply":
            keys, previous = call.arguments
            shard, first = keys[0].shard, keys[0].number
            assert keys == [SegmentKey(shard, first + n) for n in range(len(keys))]
            assert previous == (first - 1 if first else None)
            assert begun.get(shard, 0) <= first <= offered.get(shard, -1) + 1
            begun[shard], offered[shard] = first, keys[-1].number


class KillingParser:
    """Ends its worker when it meets the word KILL."""

    def __init__(self, real):
        self._real = real
        self.fingerprint = real.fingerprint
        self.fallback_for = real.fallback_for

    def parse(self, content, media_type):
        if b"KILL" in content:
            raise KilledWorker
        return self._real.parse(content, media_type)


class KillingEmbedder:
    """Ends its worker when it is given a text with the word KILL, or more texts than it bears."""

    def __init__(self, real, most=10**6):
        self._real = real
        self._most = most
        self.recipe = real.recipe

    def embed(self, texts, role):
        if any("KILL" in text for text in texts) or len(texts) > self._most:
            raise KilledWorker
        return self._real.embed(texts, role)


def poisoned_corpus(poison):
    texts = {name: text + f" own{name}" for name, text in corpus(24).items()}
    return texts | {name: f"before KILL {name}" for name in poison}


@pytest.mark.parametrize("poison", [["doc003"], [f"doc{n:03}" for n in range(3, 11)]])
def test_documents_that_end_the_worker_that_drafts_them_become_dead_letters(
    small_index, many_parts, poison
):
    index = small_index(run={"shard_workers": 2})
    index.wrappers = {"parser": KillingParser}
    texts = poisoned_corpus(poison)

    report = index.ingest(texts, ScriptedExecutor(cores=8))

    assert report.status == "partial"
    assert (report.documents.added, report.documents.dead) == (24 - len(poison), len(poison))
    assert index.documents().keys() == texts.keys() - set(poison)
    assert index.ids() == index.expected_ids()
    assert {(x.doc_id, x.stage, x.code) for x in index.letters()} == {
        (name, "read", "killed-worker") for name in poison
    }


@pytest.mark.parametrize("poison", [["doc003"], [f"doc{n:03}" for n in range(3, 11)]])
def test_documents_that_end_the_worker_that_embeds_them_lose_their_chunks_alone(
    small_index, poison
):
    index = small_index(run={"embed_workers": 2})
    index.wrappers = {"embedder": KillingEmbedder}
    texts = poisoned_corpus(poison)

    report = index.ingest(texts, ScriptedExecutor(cores=8))

    assert report.status == "partial"
    assert report.documents.added == len(texts)
    assert report.chunks.dead == len(poison)
    assert index.ids() == index.expected_ids()
    assert {(x.doc_id, x.stage, x.code) for x in index.letters()} == {
        (name, "embed", "killed-worker") for name in poison
    }


def test_a_segment_that_ends_workers_as_a_whole_ends_the_run_and_does_not_go_on_for_ever(
    small_index,
):
    index = small_index(shard_count=1)
    index.wrappers = {"embedder": lambda real: KillingEmbedder(real, most=8)}

    with pytest.raises(StopRunError) as caught:
        index.ingest(poisoned_corpus(["doc003"]), ScriptedExecutor())

    assert caught.value.code == "crash-loop"


def test_workers_that_all_die_end_the_run_with_what_the_last_one_died_of(small_index):
    index = small_index()
    executor = ScriptedExecutor(accident=lambda call: "die" if call.pool == "embed" else None)

    with pytest.raises(StopRunError, match="workers died and nothing was committed") as caught:
        index.ingest(corpus(9), executor)

    assert caught.value.code == "crash-loop"
    assert "embed worker 0" in str(caught.value)
    # Nothing that was drafted is drafted again.
    assert index.ingest().documents.unchanged == 9


@pytest.mark.parametrize("pool", POOLS)
def test_a_call_that_fails_each_time_ends_the_run_after_its_last_try(small_index, pool):
    index = small_index()
    methods = {"read_block", "draft", "embed", "apply"}
    executor = ScriptedExecutor(
        accident=lambda call: "fail" if call.pool == pool and call.method in methods else None
    )

    with pytest.raises(StopRunError) as caught:
        index.ingest(corpus(9), executor)

    assert caught.value.code == ("crash-loop" if pool == "shard" else "retries-exhausted")
    assert index.ingest().status == "succeeded"
    assert index.documents().keys() == corpus(9).keys()


def test_a_reader_that_asks_to_wait_is_waited_for_however_the_clock_runs(small_index, clock):
    """Looking at the clock takes time too: the wait may be over between two looks."""
    index = small_index()
    index.clock, clock.per_look = clock, 0.013
    executor = ScriptedExecutor(
        accident=lambda call: "fail" if call.pool == "read" and call.turn < 5 else None
    )

    assert index.ingest(corpus(9), executor).documents.added == 9


def test_who_has_long_to_wait_looks_seldom_and_is_hardly_late(small_index):
    """Embedding jobs may take a day; a stop that is asked for is to be heard all the same."""
    index = small_index()
    asked, pauses = [], []

    class AsksToWait:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        def upsert(self, collection, batch):
            asked.append(index.clock.now)
            if len(asked) == 1:
                raise RateLimitedError("later", retry_after=600.0)
            return self.real.upsert(collection, batch)

    def sleep(seconds):
        pauses.append(seconds)
        index.clock.sleep(seconds)

    index.wrappers["store"] = AsksToWait
    assert index.ingest({"a": "some words"}, sleep=sleep).documents.added == 1
    assert 600.0 <= asked[1] - asked[0] <= 601.0
    assert max(pauses) <= 1.0
    assert len(pauses) < 700


def test_many_blocks_may_fail_a_few_times_each(small_index, many_parts):
    index = small_index()
    executor = ScriptedExecutor(
        accident=lambda call: "fail" if call.pool == "read" and call.turn % 2 else None
    )

    report = index.ingest(corpus(60), executor)

    assert report.documents.added == 60


def test_a_second_writer_of_a_shard_is_told_so_and_changes_nothing(small_index):
    index = small_index(shard_count=1)
    index.ingest(corpus(3))
    taken = "s0000/00000001.docs.parquet"

    def other_run_was_first(path):
        if path.endswith(taken):
            index.workspace.files[path] = b"of the other run"

    index.workspace.before_create = other_run_was_first
    with pytest.raises(ShardOwnedElsewhereError, match="another run has committed"):
        index.ingest(corpus(6))


def test_a_failing_workspace_in_the_middle_of_a_block_loses_and_doubles_nothing(
    small_index, many_parts
):
    """The worker that could not commit is replaced; what it still held is not drafted twice."""
    index = small_index(shard_count=1)
    failures = iter([True])

    def fail_once(path):
        if path.endswith(".docs.parquet") and next(failures, False):
            raise TransientError("no answer")

    index.workspace.before_create = fail_once

    report = index.ingest(corpus(30))

    assert (report.documents.added, report.documents.dead) == (30, 0)
    assert index.documents().keys() == corpus(30).keys()


class Noting(ScriptedExecutor):
    """Remembers which calls were made, whether they were carried out or not."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def submit(self, pool, *call, **how):
        self.asked.append((super().submit(pool, *call, **how), pool))
        return self.asked[-1][0]


def test_a_run_that_is_stopped_waits_for_what_is_in_flight(small_index, many_parts):
    """It may have been paid for."""
    index = small_index(run={"segment_chunks": 8, "embed_workers": 2})
    executor = Noting()

    class OnceEmbedding:
        def is_set(self):
            return bool(embedding())

    def embedding():
        return {ticket for ticket, pool in executor.asked if pool == "embed"}

    with pytest.raises(InterruptedRunError):
        index.ingest(corpus(36), executor, stop=OnceEmbedding())
    assert embedding() <= {call.ticket for call in executor.log}
    report = index.ingest()
    assert report.status == "succeeded"
    assert report.documents.read == 36
