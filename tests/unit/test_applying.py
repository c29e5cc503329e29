"""Applying: after any history the store holds what the source says, and the records are counted."""

import uuid
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill.applied_layer import AppliedLayer
from embedmill.applying import SegmentApplier
from embedmill.assembly import store_of
from embedmill.document import RECORD_NAMESPACE, record_id
from embedmill.embedder import EmbeddedTexts
from embedmill.errors import PermanentError, ShardOwnedElsewhereError, TransientError
from embedmill.segment import SegmentKey
from embedmill.testing.scripted_executor import KilledWorker, ScriptedExecutor
from embedmill.vector_layer import SUPERSEDED, SegmentVectors, VectorLayer
from embedmill.vector_store import Rejection


class PickyEmbedder:
    """Fails texts that start with !."""

    def __init__(self, real):
        self._real = real
        self.recipe = real.recipe

    def embed(self, texts, role):
        done = self._real.embed(texts, role)
        bad = [at for at, text in enumerate(texts) if text.startswith("!")]
        vectors = done.vectors.copy()
        vectors[bad] = float("nan")
        failures = {at: PermanentError("not this one", code="refused-text") for at in bad}
        return EmbeddedTexts(vectors, {**done.failures, **failures}, done.token_count)


@dataclass
class WatchedStore:
    """A store that refuses texts that start with ? and notes what is done to it."""

    real: object
    log: list = field(default_factory=list)
    before: object = lambda _: None

    def __getattr__(self, name):
        return getattr(self.real, name)

    def upsert(self, collection, batch):
        self.before("upsert")
        good = [n for n, p in enumerate(batch.payloads) if not p["text"].startswith("?")]
        bad = sorted(set(range(len(batch.ids))) - set(good))
        assert self.real.upsert(collection, batch.take(good)) == []
        self.log.append(("upsert", {batch.ids[row] for row in good}))
        return [Rejection(row, "picky", "not this one") for row in bad]

    def delete(self, collection, ids):
        self.before("delete")
        self.real.delete(collection, ids)
        self.log.append(("delete", set(ids)))


@pytest.fixture
def watched(small_index):
    """Makes small indexes with a picky embedder and a picky, watched store."""

    def make(**more):
        index = small_index(chunker={"kind": "text", "max_tokens": 2}, shard_count=2, **more)
        index.log, index.before = [], lambda _: None
        index.wrappers = {
            "embedder": PickyEmbedder,
            "store": lambda real: WatchedStore(real, index.log, index.before),
        }
        return index

    return make


def joined(paragraphs):
    return "\n\n".join(paragraphs)


words = st.sampled_from(["a", "b", "c d", "!x", "?y", "!z", "same"])
syncs = st.lists(
    st.dictionaries(
        st.sampled_from([f"doc{n}" for n in range(6)]), st.lists(words, max_size=4).map(joined)
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20)
@given(syncs)
def test_after_any_history_the_store_holds_the_good_chunks_of_the_last_sync_and_no_others(
    watched, syncs
):
    index = watched()
    for sync in syncs:
        # One that lives: a run in which everything dies is a failed one.
        texts = {**sync, "anchor": "steady"}
        report = index.ingest(texts)
        live = index.live_chunks()
        stored = {(p["doc_id"], p["chunk_index"]): p["text"] for p in index.payloads()}
        assert index.documents().keys() == texts.keys()
        assert stored == {place: text for place, (text, good) in live.items() if good}
        assert all(good == (text[0] not in "!?") for text, good in live.values())
        assert index.ids() == {record_id(*place) for place in stored}
        assert report.live_records == report.stored_records == len(stored)
    # Every chunk without a record has a letter, and the letter is open; all others are closed.
    lost = {place for place, (_, good) in live.items() if not good}
    assert {(x.letter.doc_id, x.letter.chunk_index) for x in index.open_letters()} == lost


def test_new_records_are_there_before_stale_ones_go(watched):
    index = watched(run={"segment_chunks": 100})
    index.ingest({"a": joined(["one two", "three four", "five six"])})
    index.log.clear()
    index.ingest({"a": joined(["seven eight", "!x"])})
    assert index.log == [
        ("upsert", {record_id("a", 0)}),
        # What shrank away, and what died: no one may find what the document said before.
        ("delete", {record_id("a", 1), record_id("a", 2)}),
    ]


def test_a_document_that_is_gone_takes_its_records_along_and_no_others(watched):
    index = watched()
    index.ingest({"a": joined(["one two", "three four"]), "b": "one two"})
    index.log.clear()
    index.ingest({"b": "one two"})
    assert index.log == [("delete", {record_id("a", 0), record_id("a", 1)})]
    assert index.ids() == {record_id("b", 0)}


@pytest.mark.parametrize("moment", ["upsert", "delete"])
@pytest.mark.parametrize("accident", [TransientError("no answer"), KilledWorker()])
def test_a_write_that_breaks_off_is_done_again_whole(watched, moment, accident):
    index = watched()
    index.ingest({"a": joined(["one two", "three four"]), "b": "x"})
    accidents = iter([accident])

    def once(what):
        if what == moment:
            for error in accidents:
                raise error

    index.before = once
    report = index.ingest({"a": "seven", "b": "x"}, ScriptedExecutor())
    assert report.records.upserted == 1
    assert report.records.deleted == 1
    assert index.ids() == {record_id("a", 0), record_id("b", 0)}


def test_chunks_that_a_killed_run_lost_have_letters_after_the_next_one(watched):
    """The run ends right after the vectors, or the confirmation, were committed."""
    for moment in ("dead_letters/", "applied/"):
        index = watched()
        killed = iter([True])

        def kill(path, killed=killed, moment=moment):
            if moment in path and next(killed, False):
                raise KeyboardInterrupt

        index.workspace.before_create = kill
        with pytest.raises(KeyboardInterrupt):
            index.ingest({"a": joined(["good", "!x"]), "b": joined(["good", "?y"])})
        index.ingest()
        assert {(x.doc_id, x.stage, x.code) for x in index.letters()} == {
            ("a", "embed", "refused-text"),
            ("b", "apply", "picky"),
        }


def test_what_the_store_has_confirmed_is_not_sent_again_after_a_failure(watched, monkeypatch):
    monkeypatch.setattr("embedmill.applying._RECORDS", 3)
    index = watched()
    calls = iter(range(1000))

    def fail_once(doing):
        if doing == "upsert" and next(calls) == 1:
            raise TransientError("not now")

    index.before = fail_once
    index.ingest({"a": " ".join(f"w{n} v{n}" for n in range(10)) + " ?x y"})
    sent = [ids for what, ids in index.log if what == "upsert"]
    assert sum(map(len, sent)) == len(set().union(*sent)) == len(index.expected_ids())
    assert index.ids() == index.expected_ids()
    assert [letter.code for letter in index.letters()] == ["picky"]


def test_a_call_that_has_used_up_its_time_goes_on_in_the_next(watched, monkeypatch):
    monkeypatch.setattr("embedmill.applying._RECORDS", 3)
    index = watched(run={"call_deadline_s": 1e-9})
    index.ingest({"a": " ".join(f"w{n} v{n}" for n in range(10))})
    sent = [ids for what, ids in index.log if what == "upsert"]
    assert [len(ids) for ids in sent] == [3, 3, 3, 1]
    assert index.ids() == index.expected_ids()


def test_a_segment_that_another_run_has_applied_is_left_to_that_run(watched):
    index = watched()
    index.ingest({"a": "one two"})
    index.log.clear()
    [(shard, [number])] = index.applied.committed().items()
    with index.seams():
        applier = SegmentApplier(
            index.chunks,
            index.vectors,
            index.applied,
            store_of(index.settings),
            index.version.collection,
            now=lambda: "now",
            run="another",
            bury=lambda *_: None,
        )
        with pytest.raises(ShardOwnedElsewhereError, match=r"run \d+T\d+Z has applied"):
            applier.apply(SegmentKey(shard, number), None)
    assert index.log == []


def test_of_a_document_that_changed_half_way_nothing_is_written(watched):
    """One chunk had its vector before the document changed; a later segment has it again."""
    index = watched()
    index.ingest({"a": joined(["one two", "three four"])})
    [(shard, [number])] = index.applied.committed().items()
    key = SegmentKey(shard, number)
    _, digest = index.chunks.chunks(key)
    whole = index.vectors.read(key, digest)
    vectors, origin = whole.vectors.copy(), whole.origin.copy()
    vectors[1], origin[1] = np.nan, SUPERSEDED
    half = VectorLayer(index.workspace, "small", "half", vectors.shape[1])
    assert half.commit(key, SegmentVectors(vectors, origin, {}), digest)
    applied = AppliedLayer(index.workspace, "small", "half")
    index.log.clear()
    with index.seams():
        applier = SegmentApplier(
            index.chunks,
            half,
            applied,
            store_of(index.settings),
            index.version.collection,
            now=lambda: "now",
            bury=lambda *_: None,
        )
        assert applier.apply(key, None).upserted == 0
    assert index.log == []
    assert applied.read(key).records == 0


def test_payloads_carry_what_a_reader_needs(watched):
    index = watched(
        source={
            "kind": "table",
            "path": "unused",
            "metadata_columns": ["author"],
        }
    )
    index._more["source"]["path"] = str(index.folder)
    index.ingest([{"id": "a", "text": "one two three", "author": "Ada"}])
    payload = next(p for p in index.payloads() if p["chunk_index"] == 0)
    assert payload["doc_id"] == "a"
    assert payload["uri"] == "rows0.jsonl:1"
    assert payload["metadata"] == {"author": "Ada"}
    assert "one two three"[payload["start"] : payload["end"]] == payload["text"]


@given(st.text(), st.integers(0, 10**6))
def test_the_id_of_a_record_is_a_uuid_of_version_5_of_its_place(doc_id, chunk_index):
    name = f"{len(doc_id)}:{doc_id}:{chunk_index}"
    assert record_id(doc_id, chunk_index) == uuid.uuid5(RECORD_NAMESPACE, name)


def test_ids_that_are_no_utf_8_have_records_too():
    assert record_id("a\udcff", 0).version == 5
    assert record_id("a\udcff", 0) != record_id("a\udcfe", 0)
