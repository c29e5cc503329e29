"""Readers: they follow the manifest; no search is empty, none is of two versions."""

import asyncio
import json
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from actors.embed_worker import EmbedWorker
from actors.store_writer import StoreWriter
from embedmill.assembly import store_of
from embedmill.async_index_reader import AsyncIndexReader, open_index_async
from embedmill.embedders.hashing import hashing_recipe
from embedmill.errors import ModelDriftError, RefusedError, TransientError
from embedmill.index_reader import IndexReader
from embedmill.manifest import Manifest
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.settings import HashingEmbedderSettings

TEXTS = {f"d{n}": f"word{n} stands alone in text{n}" for n in range(20)}


def second_version(index, **embedder):
    """v2 beside v1: built, not published."""
    chosen = HashingEmbedderSettings(**{"kind": "hashing", "dimension": 64, **embedder})
    settings = index.settings.model_copy(update={"embedder": chosen})
    manifest = Manifest(index.workspace, "small")
    state = manifest.read()
    version = replace(
        state.versions[0],
        number=2,
        state="ready",
        embedding=hashing_recipe(chosen, "cosine"),
        collection="small--v2",
    )
    manifest.commit(version, state)
    context = RunContext(
        settings, "20260101T000000Z", "v2", "small--v2", version.chunking, version.embedding
    )
    with index.seams():
        writer, worker = StoreWriter(context), EmbedWorker(context)
        writer.prepare()
        for shard, numbers in index.chunks.committed().items():
            before = None
            for number in numbers:
                worker.embed(SegmentKey(shard, number))
                writer.apply([SegmentKey(shard, number)], before)
                before = number
    return version


def publish(index, number):
    manifest = Manifest(index.workspace, "small")
    state = manifest.read()
    manifest.commit(replace(state.version(number), state="published"), state)


@pytest.fixture
def index(small_index):
    made = small_index(embedder={"kind": "hashing", "dimension": 32}, chunker={"kind": "document"})
    made.ingest(TEXTS)
    return made


@pytest.fixture
def reader(index):
    with index.seams(), IndexReader(index.settings, refresh_s=0) as opened:
        yield opened


def test_hits_come_best_first(reader):
    hits = reader.search("word7 text7", k=3)
    assert hits[0].payload["doc_id"] == "d7"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_publication_is_followed_and_so_is_the_way_back(index, reader):
    second_version(index)
    assert not reader.refresh()
    publish(index, 2)
    assert reader.refresh()
    assert reader.version.name == "v2"
    assert reader.search("word7 text7", k=1)[0].payload["doc_id"] == "d7"
    publish(index, 1)
    # The settings name v1's model; v2's own was known by its canary.
    assert reader.refresh()
    assert reader.search("word3 text3", k=1)[0].payload["doc_id"] == "d3"


def test_a_new_version_of_the_same_recipe_takes_over_at_the_next_search(index, reader):
    version = second_version(index, dimension=32)
    assert version.embedding == reader.version.embedding
    publish(index, 2)
    reader.search("word7")
    assert reader.version.name == "v2"


def test_the_old_version_answers_until_the_new_model_is_loaded(index, reader, monkeypatch):
    second_version(index)
    publish(index, 2)
    may_load = threading.Event()
    real = IndexReader._load

    def slow(self, version):
        assert may_load.wait(30)
        return real(self, version)

    monkeypatch.setattr(IndexReader, "_load", slow)
    for _ in range(3):
        assert reader.search("word7 text7", k=1)[0].payload["doc_id"] == "d7"
        assert reader.version.name == "v1"
    may_load.set()
    reader._loading.join()
    assert reader.version.name == "v2"
    assert reader.search("word7 text7", k=1)[0].payload["doc_id"] == "d7"


def test_a_model_that_cannot_be_loaded_leaves_the_old_version(index, reader, monkeypatch, caplog):
    second_version(index)
    publish(index, 2)

    def missing(self, version):
        raise RefusedError("no such model here")

    monkeypatch.setattr(IndexReader, "_load", missing)
    assert reader.search("word7", k=1)
    reader._loading.join()
    assert reader.version.name == "v1"
    assert "v2 is published, but cannot be searched here; v1 goes on" in caplog.text


@pytest.mark.parametrize("manifest", ["taken back", "out of reach"])
def test_a_model_that_was_loaded_in_vain_is_let_go(index, reader, monkeypatch, manifest):
    second_version(index)
    publish(index, 2)
    real, closed = IndexReader._load, threading.Event()

    def loaded(self, version):
        embedder = real(self, version)
        embedder.close = closed.set
        if manifest == "taken back":
            publish(index, 1)
        else:
            monkeypatch.setattr(Manifest, "read", silent)
        return embedder

    def silent(self):
        raise TransientError("no answer")

    monkeypatch.setattr(IndexReader, "_load", loaded)
    assert reader.search("word7", k=1)
    reader._loading.join()
    assert reader.version.name == "v1"
    assert closed.is_set()


def replace_first_version(index):
    second_version(index)
    publish(index, 2)
    store = store_of(index.settings)
    store.set_alias("small", "small--v2")
    store.drop_collection("small--v1")


def test_a_collection_that_was_pruned_under_the_reader_is_left_for_the_new_one(index):
    with index.seams(), IndexReader(index.settings, refresh_s=3600) as reader:
        replace_first_version(index)
        assert reader.search("word7 text7", k=1)[0].payload["doc_id"] == "d7"
        assert reader.version.name == "v2"


def test_a_search_of_a_pruned_collection_goes_on_though_another_search_found_the_new_one(
    index, monkeypatch
):
    with index.seams(), IndexReader(index.settings, refresh_s=3600) as reader:
        replace_first_version(index)
        embedded = reader._embedded

        def overtaken(view, query):
            vector = embedded(view, query)
            reader.refresh()
            return vector

        monkeypatch.setattr(reader, "_embedded", overtaken)
        assert reader.search("word3 text3", k=1)[0].payload["doc_id"] == "d3"
        assert reader.version.name == "v2"


def test_a_manifest_that_cannot_be_read_leaves_the_old_version(index, reader, monkeypatch, caplog):
    def silent(self):
        raise TransientError("no answer")

    monkeypatch.setattr(Manifest, "read", silent)
    assert reader.search("word7")
    assert "v1 goes on" in caplog.text


def test_a_manifest_that_is_damaged_leaves_the_old_version(index, reader, caplog):
    index.workspace.files["indexes/small/manifest/00000099.json"] = b"{torn"
    assert reader.search("word7")
    assert "v1 goes on" in caplog.text


def test_a_workspace_that_was_made_anew_is_followed_though_it_counts_from_1_again(index, reader):
    store = store_of(index.settings)
    store._contents.aliases.clear()
    store.drop_collection("small--v1")
    index.workspace.files.clear()
    index.swap(embedder={"kind": "hashing", "dimension": 64})
    index.ingest(TEXTS)
    assert reader.search("word7 text7", k=1)[0].payload["doc_id"] == "d7"
    assert (reader.version.name, reader.version.embedding.dimension) == ("v1", 64)


def test_the_manifest_is_looked_at_no_more_often_than_was_asked_for(index, new_clock, monkeypatch):
    clock, looks = new_clock(), []
    with index.seams(), IndexReader(index.settings, refresh_s=5, clock=clock) as reader:
        real = Manifest.read
        monkeypatch.setattr(Manifest, "read", lambda self: looks.append(1) or real(self))
        for _ in range(20):
            clock.now += 1
            reader.search("word7")
    assert len(looks) == 4


def test_searches_during_publications_are_never_empty_and_never_mixed(index, reader):
    """Vectors of the two versions have different dimensions: a mixture could not be searched."""
    second_version(index)
    wrong, done = [], threading.Event()

    def search(number):
        while not done.is_set():
            name = f"d{number}"
            hits = reader.search(f"word{number} text{number}", k=2)
            if len(hits) != 2 or hits[0].payload["doc_id"] != name:
                wrong.append((name, hits))

    threads = [threading.Thread(target=search, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    seen = set()
    for turn in range(20):
        publish(index, 1 + turn % 2)
        reader.refresh()
        seen.add(reader.version.name)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert seen == {"v1", "v2"}


def test_a_tenant_sees_its_own_documents_whatever_it_asks(small_index):
    made = small_index(embedder={"kind": "hashing", "dimension": 32}, chunker={"kind": "document"})
    made._more["source"] = {
        "kind": "table",
        "path": str(made.folder),
        "metadata_columns": ["tenant"],
    }
    rows = [
        {"id": name, "text": text, "tenant": ["red", "blue"][n % 2]}
        for n, (name, text) in enumerate(TEXTS.items())
    ]
    made.ingest(rows)
    with made.seams(), IndexReader(made.settings) as reader:
        blue = reader.for_tenant("tenant", "blue")
        hits = blue.search("word4 text4", k=20)
        assert {hit.payload["metadata"]["tenant"] for hit in hits} == {"blue"}
        assert len(hits) == 10
        assert len(blue.search("word4", k=20, where={"doc_id": ["d4", "d5"]})) == 1
        with pytest.raises(RefusedError, match=r"metadata\.tenant"):
            blue.search("word4", where={"metadata.tenant": "red"})


def test_a_blank_query_is_refused(reader):
    with pytest.raises(RefusedError, match="blank"):
        reader.search("  ")


def test_a_reader_can_prove_its_model(index, reader):
    reader.verify()

    class Other:
        recipe = reader.version.embedding

        def embed(self, texts, role):
            return reader._view.embedder.embed([f"x {text}" for text in texts], role)

    index.wrappers = {"embedder": lambda _: Other()}
    with index.seams(), IndexReader(index.settings) as other, pytest.raises(ModelDriftError):
        other.verify()


def test_an_index_without_a_version_is_refused(small_index):
    made = small_index()
    with made.seams(), pytest.raises(RefusedError, match="no published version"):
        IndexReader(made.settings)


def test_searches_of_a_loop_run_at_once(index):
    async def searching():
        reader = AsyncIndexReader(IndexReader(index.settings, refresh_s=0))
        async with reader:
            found = await asyncio.gather(
                *[reader.search(f"word{n} text{n}", k=1) for n in range(20)]
            )
            assert not await reader.refresh()
            assert reader.version.name == "v1"
        return [hits[0].payload["doc_id"] for hits in found]

    with index.seams():
        assert asyncio.run(searching()) == list(TEXTS)


def test_a_reader_for_asyncio_is_entered_or_awaited_and_knows_tenants(index):
    async def searching():
        async with open_index_async(index.settings) as reader:
            await reader.verify()
            entered = await reader.search("word3 text3", k=1)
            nobody = await reader.for_tenant("customer", "nobody").search("word3 text3")
        reader = await open_index_async(index.settings)
        awaited = await reader.search("word3 text3", k=1)
        await reader.close()
        return entered == awaited, nobody

    with index.seams():
        assert asyncio.run(searching()) == (True, [])


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, json, embedmill; print(json.dumps([m for m in ('numpy', 'pyarrow', 'pydantic',"
        " 'torch', 'ray') if m in sys.modules])); from embedmill import open_index; "
        "print(json.dumps([m for m in ('torch', 'ray', 'sentence_transformers', 'qdrant_client') "
        "if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[], []]
