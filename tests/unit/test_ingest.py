"""Whole runs over a small index: syncs, resumption, and what a second run finds."""

import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill.applied_layer import AppliedLayer
from embedmill.assembly import store_of
from embedmill.document import record_id
from embedmill.errors import (
    CountsMismatchError,
    DamagedFileError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.executor import InlineExecutor
from embedmill.run_report import read_reports
from embedmill.testing.scripted_executor import ScriptedExecutor
from embedmill.vector_store import VectorBatch
from pipelines.run_options import InterruptedRunError


def words(count, start=0):
    return " ".join(f"w{start + n}" for n in range(count))


def ids_of(**chunk_counts):
    return {record_id(name, n) for name, count in chunk_counts.items() for n in range(count)}


def test_a_document_that_shrinks_empties_and_disappears_leaves_nothing_behind(small_index):
    """Chunks of four words."""
    index = small_index()
    for texts, expected in (
        ({"a": words(20), "b": words(4)}, ids_of(a=5, b=1)),
        ({"a": words(8), "b": words(4)}, ids_of(a=2, b=1)),
        ({"a": "", "b": words(4)}, ids_of(b=1)),
        ({"a": words(12), "b": words(4)}, ids_of(a=3, b=1)),
        ({"b": words(4)}, ids_of(b=1)),
        ({}, set()),
    ):
        report = index.ingest(texts)
        assert index.ids() == expected
        assert report.stored_records == len(expected)


def test_running_again_changes_nothing(small_index):
    index = small_index()
    texts = {f"d{n}": words(9, n) for n in range(12)}
    first = index.ingest(texts)
    files, ids = dict(index.workspace.files), index.ids()
    again = index.ingest()
    assert (again.documents.unchanged, again.chunks.chunks, again.records.upserted) == (12, 0, 0)
    assert not again.changed_anything
    assert index.ids() == ids
    assert first.live_records == again.live_records
    # No new file but the run's own.
    new = index.workspace.files.keys() - files.keys()
    assert all("/runs/" in path or "/lease/" in path for path in new)


def test_a_store_that_holds_more_than_was_written_ends_in_a_failed_run_that_says_so(small_index):
    index = small_index()
    index.ingest({"a": words(4)})
    vector = np.full((1, 8), 8**-0.5, np.float32)
    strange = VectorBatch([record_id("somebody's", 0)], vector, [{"doc_id": "somebody's"}])
    store_of(index.settings).upsert("small--v1", strange)
    with pytest.raises(CountsMismatchError, match="1 record applied, but the store counts 2"):
        index.ingest()
    _run, report = next(read_reports(index.workspace, "small"))
    assert report.status == "failed"


class Buggy:
    """An embedder with a mistake that nobody foresaw."""

    def __init__(self, real):
        self.recipe = real.recipe

    def embed(self, texts, role):
        raise ZeroDivisionError("of sk-abcdefghij0123456789ABCD")


def test_a_run_that_ends_by_a_bug_leaves_a_report_as_well(small_index):
    index = small_index()
    index.wrappers["embedder"] = Buggy
    with pytest.raises(ZeroDivisionError):
        index.ingest({"a": words(4)})
    _run, report = next(read_reports(index.workspace, "small"))
    assert report.status == "failed"
    assert report.error.startswith("unexpected ZeroDivisionError: of")
    assert "0123456789" not in report.error
    del index.wrappers["embedder"]
    assert index.ingest().status == "succeeded"


class NoCluster(InlineExecutor):
    """A cluster that does not answer, as an executor finds out when it is asked its first thing."""

    @property
    def cores(self):
        raise RefusedError("no Ray cluster answers")


def test_a_cluster_that_does_not_answer_has_begun_no_run(small_index):
    index = small_index()
    with pytest.raises(RefusedError, match="no Ray cluster answers"):
        index.ingest({"a": words(4)}, NoCluster())
    assert list(read_reports(index.workspace, "small")) == []


def test_a_run_that_fails_when_its_records_are_out_of_reach_says_why_and_leaves_a_report(
    small_index, monkeypatch
):
    def fail(*_):
        raise CountsMismatchError("the run's own")

    def no_answer(*_):
        raise TransientError("no answer")

    def fail_and_be_out_of_reach(*_):
        monkeypatch.setattr(AppliedLayer, "records_at", no_answer)
        fail()

    index = small_index()
    monkeypatch.setattr("pipelines.open_version.require_sums", fail_and_be_out_of_reach)
    with pytest.raises(CountsMismatchError, match="the run's own"):
        index.ingest({"a": words(4)})
    _run, report = next(read_reports(index.workspace, "small"))
    assert (report.status, report.error) == ("failed", "the run's own")
    assert report.live_records == report.stored_records == 1


def test_of_two_equal_documents_exactly_the_removed_one_goes(small_index):
    index = small_index()
    same = words(8)
    both = {"a": same, "b": same}
    index.ingest(both)
    index.ingest({"b": same})
    assert index.ids() == ids_of(b=2)
    index.ingest(both)
    index.ingest({"a": same})
    assert index.ids() == ids_of(a=2)
    index.ingest({})
    assert index.ids() == set()


def test_a_source_larger_than_a_segment_is_neither_deleted_nor_embedded_again(
    small_index, many_parts
):
    index = small_index(shard_count=1, run={"segment_chunks": 8})
    texts = {f"d{n:02}": words(4, 10 * n) for n in range(50)}
    index.ingest(texts)
    ids = index.ids()
    for _ in range(2):
        report = index.ingest()
        assert (report.chunks.embedded, report.records.deleted) == (0, 0)
        assert index.ids() == ids
    report = index.ingest({**texts, "d25": words(4, 9000)})
    assert (report.chunks.embedded, report.records.upserted) == (1, 1)
    assert index.ids() == ids


def test_a_document_in_which_one_chunk_changed_pays_for_that_chunk(small_index):
    index = small_index()
    before = [words(4, 10 * n) for n in range(6)]
    index.ingest({"a": " ".join(before)})
    after = [*before[:3], words(4, 500), *before[4:]]
    report = index.ingest({"a": " ".join(after)})
    assert (report.chunks.embedded, report.chunks.reused) == (1, 5)


def test_equal_texts_of_a_run_are_paid_for_once_across_segments(small_index, many_parts):
    index = small_index(shard_count=3)
    report = index.ingest({f"d{n}": words(4) for n in range(20)})
    assert (report.chunks.embedded, report.chunks.deduplicated) == (1, 19)
    assert report.chunks.tokens == 4


def test_the_first_complete_run_publishes_and_later_ones_leave_that_alone(small_index):
    index = small_index()
    index.ingest({"a": words(4)})
    first = index.version
    assert first.state == "published"
    assert store_of(index.settings).alias_target("small") == first.collection
    index.ingest({"a": words(4), "b": words(4)})
    assert (index.version.state, index.version.published) == ("published", first.published)
    assert index.version.counts == {"documents": 2, "records": 2, "dead_letters": 0}


def test_a_run_that_was_refused_has_not_touched_the_store(small_index):
    index = small_index()
    index.ingest({"a": words(4)})
    other = {**index._more, "embedder": {"kind": "hashing", "dimension": 16}}
    ids, index._more = index.ids(), other
    with pytest.raises(RefusedError, match="dimension: 8 -> 16"):
        index.ingest({"b": words(4)})
    index._more = {}
    assert index.ids() == ids


class Counting:
    """Counts texts and stops after some calls."""

    def __init__(self, real, counter, stop=None):
        self._real, self.recipe = real, real.recipe
        self._counter, self._stop = counter, stop

    def embed(self, texts, role):
        if role == "query":
            return self._real.embed(texts, role)
        if self._stop is not None and self._counter["calls"] >= 2:
            self._stop.set()
        self._counter["calls"] += 1
        self._counter["texts"] += len(texts)
        return self._real.embed(texts, role)


def test_a_run_that_is_stopped_is_gone_on_with_and_pays_for_nothing_twice(small_index, many_parts):
    index = small_index(shard_count=2, run={"segment_chunks": 4})
    texts = {f"d{n:02}": words(4, 10 * n) for n in range(40)}
    counter = {"calls": 0, "texts": 0}
    stop = threading.Event()
    index.wrappers = {"embedder": lambda real: Counting(real, counter, stop)}
    with pytest.raises(InterruptedRunError) as caught:
        index.ingest(texts, stop=stop)
    assert "run the same command again" in caught.value.hint
    assert next(read_reports(index.workspace, "small"))[1].status == "interrupted"
    index.wrappers = {"embedder": lambda real: Counting(real, counter)}
    report = index.ingest()
    assert counter["texts"] == 40
    assert report.documents.read == 40
    assert report.live_records == report.stored_records == 40


def test_a_run_that_is_killed_at_put_after_put_gets_through_in_the_end(small_index, many_parts):
    """Killed again and again, at later and later puts, until a run gets through."""
    texts = {f"d{n:02}": words(6, 10 * n) for n in range(12)}
    index = small_index(shard_count=2, run={"segment_chunks": 4})
    kills = 0
    while kills < 200:
        left = iter(range(1 + kills % 7))

        def kill(path, left=left):
            if "/lease" not in path and next(left, None) is None:
                raise KeyboardInterrupt

        index.workspace.before_create = kill
        try:
            index.ingest(texts)
        except KeyboardInterrupt:
            kills += 1
            continue
        break
    index.workspace.before_create = lambda _: None
    assert kills > 3
    report = index.ingest(texts)
    assert report.documents.unchanged == 12
    assert report.live_records == report.stored_records == 24
    assert index.ids() == index.expected_ids()


def test_a_full_disk_ends_the_run_and_the_next_goes_on(small_index):
    index = small_index()

    def full(path):
        if path.endswith(".parquet") and "/vectors/" in path:
            raise StopRunError("no space", code="no-space")

    index.workspace.before_create = full
    with pytest.raises(StopRunError, match="no space"):
        index.ingest({"a": words(4)})
    assert next(read_reports(index.workspace, "small"))[1].error == "no space"
    index.workspace.before_create = lambda _: None
    assert index.ingest().documents.unchanged == 1
    assert index.ids() == ids_of(a=1)


def test_a_damaged_segment_ends_the_run_with_the_name_of_its_file(small_index):
    index = small_index(shard_count=1)
    index.ingest({"a": words(4)})
    path = next(p for p in index.workspace.files if p.endswith(".docs.parquet"))
    index.workspace.files[path] = index.workspace.files[path][:-1]
    with pytest.raises(DamagedFileError, match=path):
        index.ingest({"b": words(4)})


def test_an_executor_that_served_a_run_serves_the_next(small_index):
    index = small_index()
    executor = InlineExecutor()
    index.ingest({"a": words(4)}, executor)
    report = index.ingest({"a": words(4), "b": words(4)}, executor)
    assert report.live_documents == 2


corpora = st.lists(
    st.dictionaries(
        st.sampled_from([f"d{n}" for n in range(7)]),
        st.integers(0, 14).map(lambda n: words(n, n)),
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=20)
@given(corpora, st.integers(1, 4), st.integers(0, 9))
def test_however_many_workers_and_syncs_the_end_is_that_of_one_run_over_the_last_source(
    small_index, syncs, workers, seed
):
    dice = random.Random(seed)
    many = small_index(run={"embed_workers": workers, "shard_workers": workers})
    for texts in syncs:
        order = [dice.randrange(9) for _ in range(20)]
        turn = iter(range(10**6))
        executor = ScriptedExecutor(cores=16, choose=lambda _, o=order, t=turn: o[next(t) % len(o)])
        report = many.ingest(texts, executor)
    once = small_index()
    alone = once.ingest(syncs[-1])
    assert many.ids() == once.ids()
    assert many.documents() == once.documents()
    assert report.live_records == alone.live_records
    assert sorted(p["text"] for p in many.payloads()) == sorted(p["text"] for p in once.payloads())


def test_a_document_of_which_nothing_is_to_be_seen_has_no_text(small_index):
    index = small_index()
    report = index.ingest({"a": "some words", "b": "\u200b\ufeff \n", "c": "\u00a0"})
    assert (report.documents.added, report.documents.empty) == (3, 2)
    assert report.records.upserted == 1
