"""A model is swapped, published, taken back and pruned on every store, through its real client."""

from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from served_stores import EVERYWHERE, KINDS, served_store

from embedmill.assembly import store_of
from embedmill.document import record_id
from embedmill.embedder import EmbeddedTexts
from embedmill.errors import RefusedError
from embedmill.gates.run import run_gates
from embedmill.index_reader import IndexReader
from embedmill.testing.rehearsal import made_up_texts
from pipelines.prune import prune
from pipelines.run_options import RunOptions

TEXTS = made_up_texts(40, longest=40)
FIRST = {"kind": "hashing", "dimension": 64}
# Another dimension is another index at Pinecone; another prompt is another namespace of the same.
SWAPS = {
    "dimension": {"kind": "hashing", "dimension": 96},
    "prompt": {"kind": "hashing", "dimension": 64, "query_prompt": " "},
}


class Wrong:
    """An embedder whose vectors of documents are not what they should be."""

    def __init__(self, real, change):
        self.recipe = real.recipe
        self._real, self._change = real, change

    def embed(self, texts, role):
        if role == "query":
            return self._real.embed(texts, role)
        return self._change(self._real, texts)


def as_shuffled(real, texts):
    return EmbeddedTexts(np.roll(real.embed(texts, "document").vectors, 1, axis=0))


def as_prompted(real, texts):
    return real.embed([f"Represent this for searching: {text}" for text in texts], "document")


@pytest.fixture
def index_on(small_index, tmp_path):
    """Makes an index on a store of a kind; version 1 is published."""
    with ExitStack() as stack:

        def make(kind):
            served = stack.enter_context(served_store(kind, tmp_path))
            made = small_index(
                embedder=FIRST,
                chunker={"kind": "text", "max_tokens": 30},
                store=served.settings,
                keep={"versions": 0, "days": 0},
            )
            made.served = served
            made.ingest(TEXTS)
            return made

        yield make


def publish(index):
    return index.publish(gates=run_gates)


def pruned(index):
    with index.seams():
        return prune(index.settings, RunOptions(sleep=index.clock.sleep))


def holds(index):
    """What the alias leads to, the collections, and the dimension of what readers find."""
    store = store_of(index.settings)
    try:
        target = store.alias_target("small")
        ids = [record_id(name, 0) for name in TEXTS]
        vectors = store.fetch("small", ids).vectors
        hits = store.search("small", vectors[7], 3)
        assert hits[0].payload["doc_id"] == list(TEXTS)[7]
        assert len(vectors) == len(ids)
        return target, list(store.collections()), vectors.shape[1]
    finally:
        store.close()


def found_by_a_reader(index, name):
    with index.seams(), IndexReader(index.settings) as reader:
        hits = reader.search(" ".join(TEXTS[name].split()[1:12]), k=3)
        return reader.version.number, hits[0].payload["doc_id"]


def assert_one_index_for_each_dimension(indexes, dimension):
    """An index of Pinecone never changes its dimension: another one stands beside it."""
    names = {64: "docs", 96: "docs-96-cosine"}
    assert {name: one.dimension for name, one in indexes.items()} == {
        names[size]: size for size in {64, dimension}
    }
    assert "small--v1" in indexes["docs"].namespaces
    assert "small--v2" in indexes[names[dimension]].namespaces


def cases(few, every):
    """Kinds of stores with some things each; only a few combinations unless all are wanted."""
    return [*few, *((kind, one) for kind in KINDS for one in every if EVERYWHERE)]


ONE_DIMENSION = [(kind, "dimension") for kind in KINDS]


@pytest.mark.parametrize(("kind", "swap"), cases([*ONE_DIMENSION, ("pinecone", "prompt")], SWAPS))
def test_there_and_back_and_what_is_left_is_pruned(index_on, kind, swap):
    index = index_on(kind)
    dimension = SWAPS[swap]["dimension"]
    index.swap(embedder=SWAPS[swap])
    report = index.reembed()
    assert (report.status, report.documents.read) == ("succeeded", 0)
    assert holds(index) == ("small--v1", ["small--v1", "small--v2"], 64)

    done = publish(index)
    assert not [gate.name for gate in done.gates if not gate.passed]
    assert holds(index) == ("small--v2", ["small--v1", "small--v2"], dimension)
    if index.served.pinecone is not None:
        assert_one_index_for_each_dimension(index.served.pinecone.indexes, dimension)
    assert found_by_a_reader(index, "doc-00007") == (2, "doc-00007")

    index.rollback()
    assert holds(index)[::2] == ("small--v1", 64)
    assert found_by_a_reader(index, "doc-00007") == (1, "doc-00007")
    assert not index.rollback().switch.changed

    publish(index)
    assert [version.number for version in pruned(index).versions] == [1]
    assert holds(index) == ("small--v2", ["small--v2"], dimension)
    with pytest.raises(RefusedError, match="no earlier version"):
        index.rollback()
    # Syncs go on, into the collection that is left.
    index.ingest({**TEXTS, "new": "a document that came later"})
    store = store_of(index.settings)
    assert store.count("small") == index.version.counts["records"] > len(TEXTS)
    store.close()


SEEN_BY = {as_shuffled: "self-retrieval", as_prompted: "re-embedding"}
# What a gate asks of a store is asked of each above; what it says is the same on all of them.
BROKEN = [("weaviate", as_shuffled), ("qdrant_embedded", as_prompted)]


@pytest.mark.parametrize(("kind", "change"), cases(BROKEN, SEEN_BY))
def test_a_broken_model_does_not_reach_readers(index_on, kind, change):
    index = index_on(kind)
    index.swap(embedder=SWAPS["dimension"])
    index.wrappers["embedder"] = partial(Wrong, change=change)
    index.reembed()
    del index.wrappers["embedder"]
    with pytest.raises(RefusedError, match="does not pass") as refused:
        publish(index)
    assert f"\n  {SEEN_BY[change]}: " in str(refused.value)
    assert holds(index) == ("small--v1", ["small--v1", "small--v2"], 64)
    assert found_by_a_reader(index, "doc-00007") == (1, "doc-00007")
