"""A year of nightly syncs: the index opens as fast as one that was built at once."""

import random
import sys
import time
from collections import Counter
from operator import itemgetter

import pytest
from deaths import EVERY_MOMENT
from scenario import CrashIndex, litter

from embedmill.applied_layer import AppliedLayer
from embedmill.applying import SegmentApplier
from embedmill.assembly import collection_spec
from embedmill.compacting import SPARE_SEGMENTS
from embedmill.ledger import Ledger
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.vector_layer import VectorLayer

# A year is one with every moment asked for; what grows from night to night shows in a season.
NIGHTS = 365 if EVERY_MOMENT else 100
SEGMENT = 8


class CountingWorkspace(MemoryWorkspace):
    """Counts what opening an index costs."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.listed = self.bytes = 0

    def read(self, path):
        data = super().read(path)
        self.reads += 1
        self.bytes += len(data or b"")
        return data

    def list(self, prefix):
        for entry in super().list(prefix):
            self.listed += 1
            yield entry


def opening(index):
    """What it costs to learn where every document of an index stands."""
    workspace, version = index.workspace, index.version
    chunks, vectors = index.chunks, index.vectors
    workspace.reads = workspace.listed = workspace.bytes = 0
    began = time.perf_counter()
    chunks.committed()
    vectors.committed()
    AppliedLayer(workspace, "dying", version.collection).committed()
    ledgers = [Ledger.fold(chunks, s)[0] for s in range(index.settings.shard_count)]
    seconds = time.perf_counter() - began
    cost = {"reads": workspace.reads, "listed": workspace.listed, "bytes": workspace.bytes}
    return cost, seconds, sum(map(len, ledgers))


def year(dice):
    """The documents of every night: a few are added, changed or gone."""
    documents = {f"doc-{n}": f"first text of {n}" for n in range(36)}
    yield dict(documents)
    for night in range(NIGHTS):
        for name in dice.sample(sorted(documents), 2):
            documents[name] = f"text of {name} in night {night}"
        documents.pop(dice.choice(sorted(documents)))
        documents[f"new-{night}"] = f"night {night} brought this"
        yield dict(documents)


@pytest.mark.timeout(300)
def test_after_a_year_of_syncs_an_index_opens_like_a_new_one(tmp_path):
    how = {"fresh": CountingWorkspace, "run": {"segment_chunks": SEGMENT}, "shard_count": 1}
    index = CrashIndex(tmp_path, **how)
    for documents in year(random.Random(7)):
        index.ingest(documents=documents)
    assert index.last_report().problems() == []
    fresh = CrashIndex(tmp_path, **how)
    fresh.ingest(documents=documents)
    assert without_places(index) == without_places(fresh)
    assert litter(index) == set()
    aged, slow, count = min((opening(index) for _ in range(20)), key=itemgetter(1))
    new, quick, same = min((opening(fresh) for _ in range(20)), key=itemgetter(1))
    assert count == same == len(documents)
    assert {name: aged[name] / new[name] for name in new if aged[name] > 2 * new[name]} == {}
    sys.stdout.write(f"opening: {aged} after a year, {new} when new, time x {slow / quick:.2f}\n")
    index.compact()
    aged, _, _ = opening(index)
    assert {name: aged[name] / new[name] for name in new if aged[name] > 1.2 * new[name]} == {}
    assert without_places(index) == without_places(fresh)
    assert index.audit().clean


def without_places(index):
    state = index.state()
    payloads = {
        record: {k: v for k, v in payload.items() if k != "uri"}
        for record, payload in state.payloads.items()
    }
    return payloads, state.vectors, state.ledger


def segments_of(index):
    return Counter(shard for shard, numbers in index.chunks.committed().items() for _ in numbers)


def test_a_small_shard_is_folded_now_and_then_and_not_every_night(tmp_path):
    index = CrashIndex(tmp_path, shard_count=1)
    index.ingest(documents={"a": "one"})
    folded = 0
    for night in range(3 * SPARE_SEGMENTS):
        before = segments_of(index)[0]
        index.ingest(documents={"a": f"text of night {night}"})
        folded += segments_of(index)[0] < before
        assert segments_of(index)[0] <= 1 + SPARE_SEGMENTS
    assert folded == 2


def test_compacting_twice_changes_nothing_the_second_time(tmp_path):
    index = CrashIndex(tmp_path)
    for night in range(4):
        index.ingest(documents={"a": f"one two {night}", "b": "three", "c": f"four {night}"})
    index.compact()
    files = {path for path in index.paths() if "/runs/" not in path and "/lease/" not in path}
    index.compact()
    assert files == {p for p in index.paths() if "/runs/" not in p and "/lease/" not in p}


def test_an_index_without_documents_can_be_compacted_and_filled_again(tmp_path):
    index = CrashIndex(tmp_path)
    index.ingest(documents={"a": "one", "b": "two"})
    index.ingest(documents={}, allow_deletes=True)
    index.compact()
    assert index.state().payloads == {}
    index.ingest(documents={"a": "one", "b": "two three"})
    assert {p["doc_id"] for p in index.state().payloads.values()} == {"a", "b"}
    assert index.audit().clean


def test_a_snapshot_of_several_segments_can_fill_a_new_collection(tmp_path):
    """The second segment says that its documents stood in segments that are gone."""
    index = CrashIndex(tmp_path, shard_count=1)
    index.faults = False
    index.ingest(documents={f"d{n}": f"text number {n} of ten words {n}" for n in range(6)})
    index.ingest(documents={f"d{n}": f"other number {n} of ten words {n}" for n in range(6)})
    index.compact()
    numbers = index.chunks.committed_of(0)
    assert len(numbers) > 1
    store, version = index.store(), index.version
    store.create_collection("another", collection_spec(version.embedding))
    chunks = ChunkLayer(index.workspace, "dying", version.chunking.id)
    vectors = VectorLayer.of_version(index.workspace, "dying", version)
    applied = AppliedLayer(index.workspace, "dying", "another")
    applier = SegmentApplier(
        chunks, vectors, applied, store, "another", now=lambda: "", bury=lambda *_: None
    )
    for before, number in zip([None, *numbers], numbers, strict=False):
        applier.apply(SegmentKey(0, number), before)
    assert sorted(store.ids("another")) == sorted(store.ids(version.collection))
    assert applied.read(SegmentKey(0, numbers[-1])).records == store.count("another")
