"""The search index of the embedded store: when it is made, what it finds, what a kill leaves."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from embedmill.errors import IndexLockedError, TransientError
from embedmill.settings import QdrantEmbeddedSettings
from embedmill.testing.counting_store_contract import record_ids
from embedmill.testing.vector_store_contract import brute_force
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.qdrant_embedded import QdrantEmbeddedStore
from embedmill.vector_stores.qdrant_embedded_index import unindexed

DIMENSION, COUNT = 32, 2000
SPEC = CollectionSpec(DIMENSION, "cosine", normalised=True)


def settings(path, **more):
    values = {"kind": "qdrant_embedded", "path": str(path), "index_from": 1000, **more}
    return QdrantEmbeddedSettings.model_validate(values)


def clustered(count, seed=0):
    """Directions in groups, as texts have them."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(40, DIMENSION))
    vectors = centres[draw.integers(0, 40, count)] + 0.6 * draw.normal(size=(count, DIMENSION))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def records(count, seed=0, prefix="doc"):
    payloads = [{"doc_id": f"{prefix}-{row}", "odd": row % 2} for row in range(count)]
    return VectorBatch(record_ids(count, prefix), clustered(count, seed), payloads)


@pytest.fixture
def store(tmp_path):
    store = QdrantEmbeddedStore(settings(tmp_path))
    store.create_collection("notes", SPEC)
    yield store
    store.close()


def recall(store, batch, where=None):
    found = 0
    for query in clustered(20, seed=5):
        right = {record for record, _ in brute_force(batch, query, 10, "cosine", where)}
        found += len(right & {hit.id for hit in store.search("notes", query, 10, where)})
    return found / 200


def without_index(store):
    return unindexed(store._shard("notes"))


def test_a_large_collection_gets_an_index_and_finds_nearly_all_with_it(store):
    batch = records(COUNT)
    store.upsert("notes", batch)
    assert without_index(store) == COUNT
    assert recall(store, batch) == 1.0
    store.finish("notes")
    assert without_index(store) == 0
    assert recall(store, batch) > 0.9
    assert recall(store, batch, {"odd": 1}) > 0.9
    assert store.count("notes") == COUNT == len(set(store.ids("notes")))


def test_what_is_written_later_is_found_and_counts_towards_the_next_index(store):
    first, more = records(COUNT), records(900, seed=3, prefix="more")
    store.upsert("notes", first)
    store.finish("notes")
    store.upsert("notes", more)
    store.delete("notes", first.ids[:500])
    store.finish("notes")
    # The engine takes the deleted ones for indexed.
    assert without_index(store) == 900 - 500
    assert store.search("notes", more.vectors[8], 1)[0].id == more.ids[8]
    assert first.ids[8] not in {hit.id for hit in store.search("notes", first.vectors[8], 10)}
    assert list(store.fetch("notes", [more.ids[3]]).payloads) == [more.payloads[3]]
    assert store.count("notes") == COUNT - 500 + 900


def test_records_that_are_written_again_count_though_the_engine_takes_them_for_indexed(
    store, tmp_path, monkeypatch
):
    store.upsert("notes", records(COUNT))
    store.finish("notes")
    built = []
    begin = QdrantEmbeddedStore._begin
    monkeypatch.setattr(
        QdrantEmbeddedStore, "_begin", lambda *args: built.append(begin(*args)) or built[-1]
    )
    for seed in range(1, 4):
        store.upsert("notes", records(400, seed))
        store.finish("notes")
    assert [build is not None for build in built] == [False, False, True]
    store.upsert("notes", records(999, 9))
    store.finish("notes")
    assert built[-1] is None
    assert store.count("notes") == COUNT


def test_a_small_collection_stays_without_and_exact(store):
    batch = records(999)
    store.upsert("notes", batch)
    store.finish("notes")
    assert without_index(store) == 999
    assert recall(store, batch) == 1.0


def test_exact_search_compares_with_every_record_all_the_same(tmp_path):
    store = QdrantEmbeddedStore(settings(tmp_path, exact_search=True))
    store.create_collection("notes", SPEC)
    batch = records(COUNT)
    store.upsert("notes", batch)
    store.finish("notes")
    assert recall(store, batch) == 1.0
    store.close()


def test_what_takes_longer_goes_on_and_ends_when_the_collection_is_needed(store):
    batch = records(COUNT)
    store.upsert("notes", batch)
    with pytest.raises(TransientError) as slow:
        store.finish("notes", deadline_s=0.0)
    assert slow.value.code == "optimising"
    assert store.count("notes") == COUNT
    assert list(store.fetch("notes", batch.ids[:1]).ids) == batch.ids[:1]
    store.finish("notes")
    assert without_index(store) == 0


def test_an_index_that_cannot_be_made_is_told_and_no_failure(store, monkeypatch, caplog):
    store.upsert("notes", records(COUNT))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    store.finish("notes")
    assert "no search index was made for 'notes': it ended with 1" in caplog.text
    assert store.count("notes") == COUNT


OWNER = """
    import os, signal, sys
    from embedmill.vector_stores.qdrant_embedded import QdrantEmbeddedStore
    from test_qdrant_embedded_index import COUNT, SPEC, records, settings

    store = QdrantEmbeddedStore(settings(sys.argv[1]))
    store.create_collection("notes", SPEC)
    store.upsert("notes", records(COUNT))
    build = store._begin("notes")
    # It must not come to its end before somebody has looked.
    os.kill(build.pid, signal.SIGSTOP)
    print(build.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.crash
@pytest.mark.parametrize("delay_s", [0.1, 0.6])
def test_whoever_is_killed_meanwhile_the_collection_stays_whole(tmp_path, delay_s):
    """The owner first, so that the child goes on alone; then the child."""
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    ) as owner:
        child = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with pytest.raises(IndexLockedError, match="which makes its search index"):
        QdrantEmbeddedStore(settings(tmp_path))
    child.resume()
    # Somewhere in the middle, a little further every time.
    time.sleep(delay_s)
    # On a fast machine it has come to its end.
    with suppress(psutil.NoSuchProcess):
        child.kill()
    psutil.wait_procs([child], timeout=60)
    store = QdrantEmbeddedStore(settings(tmp_path))
    batch = records(COUNT)
    assert set(store.ids("notes")) == set(batch.ids)
    np.testing.assert_allclose(store.fetch("notes", batch.ids).vectors, batch.vectors, atol=1e-5)
    store.finish("notes")
    assert without_index(store) == 0
    assert recall(store, batch) > 0.9
    store.close()


def test_a_run_that_wrote_enough_leaves_an_index(small_index, tmp_path):
    store = {"kind": "qdrant_embedded", "path": str(tmp_path / "store"), "index_from": 300}
    index = small_index(store=store, embedder={"kind": "hashing", "dimension": 32})
    texts = {f"d{number}": f"word{number} and more" for number in range(320)}
    index.ingest(texts)
    assert indexed(index) == index.version.counts["records"] >= 300
    index.ingest({**texts, "new": "one two three"})
    assert indexed(index) >= 300


def indexed(index):
    store = QdrantEmbeddedStore(index.settings.store)
    collection = index.version.collection
    known = store.count(collection) - unindexed(store._shard(collection))
    store.close()
    return known
