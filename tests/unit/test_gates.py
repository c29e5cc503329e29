"""Gates: a healthy version passes them all; what is broken is refused, by the gate that sees it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from actors.embed_worker import EmbedWorker
from actors.store_writer import StoreWriter
from embedmill.assembly import store_of
from embedmill.document import record_id
from embedmill.embedder import EmbeddedTexts
from embedmill.embedders.hashing import hashing_recipe
from embedmill.errors import PermanentError, SettingsError
from embedmill.gate import GateResult, failed_gates
from embedmill.gates.run import run_gates
from embedmill.gates.self_retrieval import asked_for, middle_of
from embedmill.manifest import Manifest
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.settings import HashingEmbedderSettings
from embedmill.testing.rehearsal import made_up_texts
from embedmill.vector_layer import SegmentVectors
from embedmill.vector_store import VectorBatch

TEXTS = made_up_texts(60, longest=60)
HASHING = {"kind": "hashing", "dimension": 64}
# The texts are such that chunks of this splitter have few neighbours in common when shifted by one.
CHUNKER = {"kind": "text", "max_tokens": 30, "splitter": "semantic"}


class Changed:
    """An embedder whose vectors of documents go through a function."""

    def __init__(self, real, change):
        self.recipe = real.recipe
        self._real, self._change = real, change

    def embed(self, texts, role):
        if role == "query":
            return self._real.embed(texts, role)
        return self._change(self._real, texts)


def as_prompted(real, texts):
    return real.embed([f"Represent this for searching: {text}" for text in texts], "document")


def as_collapsed(real, texts):
    vectors = real.embed(texts, "document").vectors * np.float32(0.02)
    vectors[:, 0] += 1
    return EmbeddedTexts(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def as_stuck(real, texts):
    """A provider that answers several inputs with the vector of the first."""
    vectors = real.embed(texts, "document").vectors
    return EmbeddedTexts(np.repeat(vectors[::4], 4, axis=0)[: len(texts)])


def as_shifted(real, texts):
    """Answers in another order than was asked."""
    return EmbeddedTexts(np.roll(real.embed(texts, "document").vectors, 1, axis=0))


def as_refusing(real, texts):
    found = real.embed(texts, "document")
    vectors = found.vectors.copy()
    vectors[::3] = np.nan
    failures = {n: PermanentError("no", code="no") for n in range(0, len(texts), 3)}
    return EmbeddedTexts(vectors, failures)


@pytest.fixture
def an_index(small_index):
    def make(texts=TEXTS, change=None, **more):
        index = small_index(embedder=HASHING, chunker=CHUNKER, **more)
        if change is not None:
            index.wrappers = {"embedder": lambda real: Changed(real, change)}
        index.ingest(texts)
        index.wrappers = {}
        return index

    return make


def gates(index, candidate=None, published=None, settings=None) -> dict[str, GateResult]:
    with index.seams():
        store = store_of(index.settings)
        state = Manifest(index.workspace, "small").read()
        version = candidate or state.versions[-1]
        found = run_gates(settings or index.settings, version, published or state.published, store)
    assert [GateResult.from_json(json.loads(json.dumps(g.to_json()))) for g in found] == list(found)
    return {result.name: result for result in found}


def failed(found) -> set[str]:
    return {result.name for result in failed_gates(list(found.values()))}


def second_version(index, change=None, **embedder):
    """Build v2 beside v1 from the stored chunks, with another recipe."""
    settings = index.settings.model_copy(
        update={"embedder": HashingEmbedderSettings(**{**HASHING, **embedder})}
    )
    manifest = Manifest(index.workspace, "small")
    state = manifest.read()
    version = replace(
        state.versions[0],
        number=2,
        state="building",
        embedding=hashing_recipe(settings.embedder, "cosine"),
        collection="small--v2",
    )
    manifest.commit(version, state)
    context = RunContext(
        settings, "20260101T000000Z", "v2", "small--v2", version.chunking, version.embedding
    )
    if change is not None:
        index.wrappers = {"embedder": lambda real: Changed(real, change)}
    with index.seams():
        writer, worker = StoreWriter(context), EmbedWorker(context)
        writer.prepare()
        for shard, numbers in index.chunks.committed().items():
            before = None
            for number in numbers:
                key = SegmentKey(shard, number)
                worker.embed(key)
                writer.apply([key], before)
                before = number
    index.wrappers = {}
    return version, settings


def test_a_healthy_first_version_passes_every_gate(an_index):
    found = gates(an_index())
    assert not failed(found)
    assert list(found) == [
        "applied",
        "store-ready",
        "records",
        "dead-letters",
        "read-back",
        "vector-health",
        "re-embedding",
        "query-contract",
        "self-retrieval",
        "slices",
        "neighbours",
        "queries",
    ]
    assert found["records"].figures["expected"] == found["records"].figures["ids"] > 60
    assert found["re-embedding"].figures["share"] == 1
    assert found["self-retrieval"].figures["found_in_ten"] > 0.95
    assert {name for name, g in found.items() if g.verdict == "not-applicable"} == {
        "slices",
        "neighbours",
        "queries",
    }


@pytest.mark.parametrize("texts", [{}, {"a": "one"}, {"a": "same", "b": "same", "c": "same"}])
def test_small_and_empty_versions_pass(an_index, texts):
    assert not failed(gates(an_index(texts)))


def test_the_figures_are_the_same_every_time(an_index):
    index = an_index()
    assert gates(index) == gates(index)


@pytest.mark.parametrize(
    ("change", "seen_by"),
    [
        (as_prompted, {"re-embedding"}),
        (as_collapsed, {"re-embedding", "vector-health"}),
        (as_stuck, {"re-embedding", "vector-health", "self-retrieval"}),
        (as_shifted, {"re-embedding", "self-retrieval"}),
        (as_refusing, {"dead-letters"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_model_is_refused(an_index, change, seen_by):
    found = gates(an_index(change=change))
    assert failed(found) == seen_by
    assert all(found[name].message for name in seen_by)


def test_a_few_dead_chunks_are_tolerated_and_shown(an_index):
    index = an_index(dict(list(TEXTS.items())[:8]), change=as_refusing)
    found = gates(index)
    assert "dead-letters" not in failed(found)
    assert found["dead-letters"].figures["dead_chunks"] > 0
    # The ledger knows which of its chunks have no record.
    assert found["records"].passed


def test_a_truncated_store_is_refused(an_index):
    index = an_index()
    store, version = store_of(index.settings), index.version
    store.delete(version.collection, sorted(index.ids())[:5])
    found = gates(index)
    assert "records" in failed(found)
    assert "5" in str(found["records"].figures["expected"] - found["records"].figures["counted"])
    assert "embedmill audit --repair" in found["records"].message


def test_as_many_records_under_other_ids_are_refused(an_index):
    index = an_index()
    store, version = store_of(index.settings), index.version
    one = store.fetch(version.collection, sorted(index.ids())[:1])
    store.delete(version.collection, one.ids)
    store.upsert(
        version.collection, VectorBatch([record_id("foreign", 0)], one.vectors, one.payloads)
    )
    found = gates(index)
    assert "records" in failed(found)
    assert "not the same" in found["records"].message


def test_rows_swapped_in_the_store_alone_are_refused(an_index):
    index = an_index()
    store, version = store_of(index.settings), index.version
    batch = store.fetch(version.collection, sorted(index.ids()))
    store.upsert(
        version.collection,
        VectorBatch(batch.ids, np.roll(batch.vectors, 1, axis=0), batch.payloads),
    )
    assert {"read-back", "self-retrieval"} <= failed(gates(index))


def test_a_segment_that_was_not_applied_is_refused(an_index):
    index = an_index()
    path = next(path for path in index.workspace.files if "/applied/" in path)
    index.workspace.delete([path])
    found = gates(index)
    assert "applied" in failed(found)
    assert found["applied"].figures["not_applied"] == 1


def test_vectors_that_are_not_finite_are_refused(an_index, monkeypatch):
    index = an_index()
    real = type(index.vectors).read

    def with_nan(self, key, digest):
        found = real(self, key, digest)
        vectors = found.vectors.copy()
        vectors[0] = np.nan
        return SegmentVectors(vectors, found.origin, found.failures)

    monkeypatch.setattr("embedmill.vector_layer.VectorLayer.read", with_nan)
    found = gates(index)
    assert "vector-health" in failed(found)
    assert found["vector-health"].figures["broken"] > 0


def test_a_better_recipe_passes_beside_the_published_one(an_index):
    index = an_index()
    version, settings = second_version(index, dimension=128)
    found = gates(index, version, settings=settings)
    assert not failed(found)
    assert found["neighbours"].figures["compared"] > 50
    assert found["self-retrieval"].figures["compared"] > 50
    assert "against v1" in found["self-retrieval"].message


def test_the_published_version_is_asked_with_the_model_that_made_it(an_index):
    """The settings name the new model; v1's own stands beside its canary."""
    index = an_index()
    version, settings = second_version(index, dimension=32, query_prompt="query ")
    found = gates(index, version, settings=settings)
    figures = found["self-retrieval"].figures
    assert figures["published_found_in_ten"] > 0.95


@pytest.mark.parametrize("change", [as_shifted, as_prompted, as_collapsed])
def test_a_broken_swap_is_refused(an_index, change):
    index = an_index()
    version, settings = second_version(index, change, dimension=128)
    found = gates(index, version, settings=settings)
    assert failed(found)
    if change is as_shifted:
        assert {"neighbours", "self-retrieval", "re-embedding"} <= failed(found)
        assert found["self-retrieval"].figures["delta_high"] < 0


def test_a_prompt_that_drowns_the_texts_is_refused(an_index):
    """The recipe itself is at fault: the model does as it is told."""
    index = an_index()
    version, settings = second_version(index, dimension=64, document_prompt="word " * 60)
    assert "vector-health" in failed(gates(index, version, settings=settings))


def test_texts_that_are_all_alike_are_let_through_when_they_were_no_better_before(an_index):
    alike = {f"d{n}": f"the same form letter for all of you, number {n:03}" for n in range(80)}
    index = an_index(alike)
    assert "self-retrieval" in failed(gates(index))
    version, settings = second_version(index, query_prompt=" ")
    found = gates(index, version, settings=settings)["self-retrieval"]
    assert found.passed
    assert found.figures["found_in_ten"] < 0.5


def test_the_worst_tenant_decides(an_index):
    rows = [
        {"id": name, "text": text, "tenant": ["red", "blue"][n % 2]}
        for n, (name, text) in enumerate(TEXTS.items())
    ]
    index = an_index({}, gates={"slice_by": "tenant"})
    source = {"kind": "table", "path": str(index.folder), "metadata_columns": ["tenant"]}
    index._more["source"] = source
    index.ingest(rows)
    found = gates(index)
    assert found["slices"].verdict == "passed"
    assert found["slices"].figures["judged"] == 2
    store, version = store_of(index.settings), index.version
    batch = store.fetch(version.collection, sorted(index.ids()))
    blue = [n for n, p in enumerate(batch.payloads) if p["metadata"]["tenant"] == "blue"]
    some = batch.take(blue)
    store.upsert(
        version.collection,
        VectorBatch(some.ids, np.roll(some.vectors, 1, axis=0), some.payloads),
    )
    found = gates(index)
    assert found["slices"].figures["worst"] == "blue"
    assert {"slices", "read-back"} <= failed(found)


def labels(index, texts=TEXTS):
    """Questions: the first words of a document, which answer it."""
    queries = index.folder / "queries.json"
    qrels = index.folder / "qrels.tsv"
    names = list(texts)[:30]
    queries.write_text(
        "\n".join(json.dumps({"_id": n, "text": " ".join(texts[n].split()[2:9])}) for n in names)
    )
    qrels.write_text("query-id\tcorpus-id\tscore\n" + "\n".join(f"{n}\t{n}\t1" for n in names))
    return {"queries": str(queries), "qrels": str(qrels)}


def test_labelled_queries_are_compared_with_the_published_version(an_index):
    index = an_index()
    version, settings = second_version(index, dimension=128)
    files = labels(index)
    settings = settings.model_copy(update={"gates": settings.gates.model_copy(update=files)})
    found = gates(index, version, settings=settings)["queries"]
    assert found.passed
    figures = found.figures
    assert figures["queries"] == 30
    assert figures["ndcg_at_10"] > 0.8
    assert figures["delta_low"] <= figures["delta"] <= figures["delta_high"]
    assert figures["delta"] == pytest.approx(
        figures["ndcg_at_10"] - figures["published_ndcg_at_10"], abs=1e-5
    )

    gates_settings = settings.gates.model_copy(update={"min_ndcg_delta": 0.5})
    settings = settings.model_copy(update={"gates": gates_settings})
    refused = gates(index, version, settings=settings)["queries"]
    assert refused.verdict == "failed"
    assert "+0.5 is asked for" in refused.message


def test_labels_that_fit_nothing_are_refused(an_index):
    index = an_index({"a": "one"})
    files = labels(index)
    (index.folder / "qrels.tsv").write_text("q\td\tg\nnobody\ta\t1\n")
    settings = index.settings.model_copy(
        update={"gates": index.settings.gates.model_copy(update=files)}
    )
    with pytest.raises(SettingsError, match="none of the"):
        gates(index, settings=settings)
    (index.folder / "qrels.tsv").write_text("nobody a 1\nb c d\n")
    with pytest.raises(SettingsError, match="separated by tabs"):
        gates(index, settings=settings)


def test_the_middle_of_a_text():
    assert middle_of("a b c d e f g h") == "c d e f"
    assert middle_of("a  b") == "a  b"
    assert middle_of("") == ""
    words = [f"w{n}" for n in range(101)]
    cut = {"text": " ".join(words), "truncated": True}
    assert asked_for(cut) == " ".join(words[12:28])
    assert asked_for({"text": " ".join(words)}) == " ".join(words[42:58])
    assert middle_of(" ".join(words)) == " ".join(words[42:58])
