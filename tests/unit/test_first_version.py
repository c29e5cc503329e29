"""The first version of an index: held against gates that need no other, before anybody reads it."""

import numpy as np
import pytest

from embedmill.announcing import kept_event
from embedmill.assembly import store_of
from embedmill.canary import CANARY_TEXTS
from embedmill.embedder import EmbeddedTexts
from embedmill.errors import RefusedError, SettingsError
from embedmill.gates.run import run_gates
from embedmill.index_reader import IndexReader
from embedmill.run_report import RunReport, read_reports
from embedmill.testing.crash_points import CrashingEmbedder, Process
from embedmill.testing.rehearsal import made_up_texts
from embedmill.vector_store import VectorBatch
from pipelines.audit import audit
from pipelines.run_options import RunOptions
from pipelines.summary import summary

TEXTS = made_up_texts(60, longest=40)
ALIKE = {f"d{n}": f"the same form letter for all of you, number {n:03}" for n in range(80)}


class Collapsed:
    """Every text has nearly the same vector."""

    def __init__(self, real):
        self.recipe = real.recipe
        self._real = real

    def embed(self, texts, role):
        vectors = self._real.embed(texts, role).vectors * np.float32(0.02)
        vectors[:, 0] += 1
        return EmbeddedTexts(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class Mixing:
    """A store that gives every record the vector of its neighbour."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    def upsert(self, collection, batch):
        wrong = VectorBatch(batch.ids, np.roll(batch.vectors, 1, axis=0), batch.payloads)
        return self._real.upsert(collection, wrong)


@pytest.fixture
def index(small_index):
    return small_index(
        embedder={"kind": "hashing", "dimension": 64}, chunker={"kind": "text", "max_tokens": 30}
    )


def failed(version):
    return {gate["name"] for gate in version.gates if not gate["passed"]}


def events(version):
    return [line["event"] for line in version.history]


def refused(index, texts=None):
    with pytest.raises(RefusedError, match="is complete, and does not pass") as caught:
        index.ingest(texts)
    return caught.value


def test_what_it_showed_is_recorded_and_said(index):
    report = index.ingest(TEXTS)
    assert index.version.state == "published"
    assert [gate["name"] for gate in index.version.gates] == [
        "applied",
        "store-ready",
        "records",
        "dead-letters",
        "read-back",
        "vector-health",
        "self-retrieval",
        "slices",
        "queries",
    ]
    assert not failed(index.version)
    records = index.version.gates[2]["figures"]
    assert records["expected"] == records["ids"] == len(index.ids())
    assert index.version.gates[6]["figures"]["found_in_ten"] > 0.95
    assert "nothing speaks against v1" in "\n".join(summary(report))
    assert RunReport.from_json(report.to_json()) == report
    # Later runs have a version to keep: nothing is asked again.
    assert index.ingest({**TEXTS, "new": "text"}).gates == ()
    assert len(index.version.gates) == 9


@pytest.mark.parametrize("texts", [{}, {"a": "one"}, {"a": "same", "b": "same", "c": "same"}])
def test_small_and_empty_ones_are_published(index, texts):
    index.ingest(texts)
    assert index.version.state == "published"


def test_what_the_store_mixed_up_is_not_shown_to_readers(index):
    process = Process()
    index.wrappers["embedder"] = lambda real: CrashingEmbedder(real, process)
    index.wrappers["store"] = Mixing
    error = refused(index, TEXTS)
    assert "\n  read-back: " in str(error)
    assert "embedmill audit --repair" in str(error)
    # It is found by other texts as well, and that would not keep it from readers.
    assert "self-retrieval" in failed(index.version)
    assert "self-retrieval" not in str(error)
    assert "embedmill publish --force" in error.hint
    version = index.version
    assert (version.state, version.published) == ("ready", None)
    assert events(version) == ["begun", "ready"]
    assert store_of(index.settings).alias_target("small") is None
    run, report = next(read_reports(index.workspace, "small"))
    assert (report.status, report.error) == ("failed", str(error))
    assert kept_event(index.workspace, "small", run)["event"] == "failed"
    with index.seams(), pytest.raises(RefusedError, match="no published version") as caught:
        IndexReader(index.settings)
    assert "embedmill versions show 1" in caught.value.hint
    # The same command again says the same and pays nothing.
    paid = len(process.effects)
    refused(index)
    assert len(process.effects) == paid
    assert events(index.version) == ["begun", "ready"]


def test_it_is_published_once_it_is_mended(index):
    index.wrappers["store"] = Mixing
    refused(index, TEXTS)
    del index.wrappers["store"]
    with index.seams():
        audit(index.settings, RunOptions(), repair=True)
    report = index.ingest()
    assert report.chunks.chunks == 0
    assert (index.version.state, failed(index.version)) == ("published", set())


def test_it_is_published_when_it_is_forced(index):
    index.wrappers["store"] = Mixing
    refused(index, TEXTS)
    with pytest.raises(RefusedError, match="gates"):
        index.publish(gates=run_gates)
    assert index.publish(gates=run_gates, force=True).switch.changed
    assert index.version.state == "published"


def test_a_model_that_knows_no_difference_is_said(index):
    index.wrappers["embedder"] = Collapsed
    told = "\n".join(summary(index.ingest(TEXTS)))
    assert failed(index.version) == {"vector-health"}
    assert "1 of 9 speaks against v1" in told
    assert "vector-health: the vectors have collapsed" in told


def test_what_is_only_poor_is_shown_to_readers_and_said(index):
    report = index.ingest(ALIKE)
    assert index.version.state == "published"
    assert failed(index.version) == {"self-retrieval", "vector-health"}
    told = "\n".join(summary(report))
    assert "2 of 9 speak against v1" in told
    assert "self-retrieval: " in told


def test_whoever_asks_for_all_gates_gets_all(index):
    index.swap(gates={"first_version": "all"})
    assert "self-retrieval" in str(refused(index, ALIKE))
    index.swap(gates={"first_version": "integrity"})
    index.ingest()
    assert index.version.state == "published"


def test_above_a_number_of_records_their_ids_are_not_listed(index, monkeypatch):
    monkeypatch.setattr("embedmill.gates.first._MOST_IDS", 10)
    index.ingest(TEXTS)
    found = index.version.gates[2]
    assert found["passed"]
    assert set(found["figures"]) == {"expected", "counted"}
    assert "an evaluation compares" in found["message"]


class Asked:
    """Counts the questions that the model is asked, beside those of the canary."""

    def __init__(self, real, asked):
        self.recipe = real.recipe
        self._real, self._asked = real, asked

    def embed(self, texts, role):
        if role == "query":
            self._asked.update(set(texts) - set(CANARY_TEXTS.values()))
        return self._real.embed(texts, role)


@pytest.mark.parametrize(("gates", "asks"), [({}, False), ({"first_version": "all"}, True)])
def test_a_provider_is_not_paid_for_parts_of_texts_unless_all_gates_decide(
    index, monkeypatch, gates, asks
):
    monkeypatch.setattr("embedmill.gates.first.rate_budget_of", lambda _: object())
    asked = set()
    index.wrappers["embedder"] = lambda real: Asked(real, asked)
    index.swap(gates=gates)
    index.ingest(TEXTS)
    assert bool(asked) == asks
    found = index.version.gates[6]
    assert (found["verdict"] == "passed") == asks
    assert ("embedmill evaluate" in found["message"]) != asks


def test_questions_that_cannot_be_read_are_told_before_anything_is_embedded(small_index, tmp_path):
    gates = {"queries": str(tmp_path / "none.jsonl"), "qrels": str(tmp_path / "none.tsv")}
    index = small_index(gates=gates)
    with pytest.raises(SettingsError, match=r"none\.jsonl cannot be read"):
        index.ingest(TEXTS)
    assert index.count_of("vectors") == 0
