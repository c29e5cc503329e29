"""Whole runs into Weaviate, under what only its server does; the matrix of stores has the rest."""

from types import SimpleNamespace
from uuid import UUID

import pytest

pytest.importorskip("weaviate")

from embedmill.errors import EmbedmillError, StopRunError
from embedmill.testing.weaviate_server import WeaviateServer
from embedmill.vector_stores.weaviate import WeaviateStore
from embedmill.vector_stores.weaviate_names import class_name
from embedmill.weaviate_settings import WeaviateSettings
from pipelines.audit import audit
from pipelines.run_options import RunOptions

TEXTS = {f"d{number}": f"one two three four five {number}" for number in range(12)}


@pytest.fixture
def index(small_index, plain_http, monkeypatch):
    """A small index whose store is on a fake server."""
    monkeypatch.setattr("weaviate.retry.time", SimpleNamespace(sleep=lambda _: None))
    index = small_index()
    with WeaviateServer() as server:
        values = {"url": server.url, "grpc_url": server.grpc_url, "records_per_request": 4}
        settings = WeaviateSettings.model_validate({"kind": "weaviate", **values})
        index.wrappers["store"] = lambda _: WeaviateStore(settings)
        index.server = server
        index.store = WeaviateStore(settings)
        yield index
        index.store.close()


def stored(index):
    return index.server.ids(class_name(index.version.collection))


def expected(index):
    return {str(one) for one in index.expected_ids()}


def aliases(index):
    return index.server.state.aliases


def published(index):
    return {class_name("small"): class_name(index.version.collection)}


def test_a_run_fills_publishes_and_keeps_up(index):
    index.ingest(TEXTS)
    assert stored(index) == expected(index)
    assert aliases(index) == published(index)
    changed = {**TEXTS, "d1": "one", "new": "six seven eight nine ten"}
    del changed["d2"]
    index.ingest(changed)
    assert stored(index) == expected(index)
    assert len(stored(index)) == index.store.count("small")
    vector = index.store.fetch("small", list(index.expected_ids())).vectors[0]
    hits = index.store.search("small", vector, 3)
    assert hits[0].score == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("route", "deeds"),
    [
        ("objects.batch", "cut-reply partial disk-full"),
        ("objects.delete", "drop-reply partial"),
    ],
)
def test_a_fault_costs_at_most_a_second_run(index, route, deeds):
    index.ingest(TEXTS)
    deeds = deeds.split()
    texts = [
        dict.fromkeys(TEXTS, "one two") | {"new": f"six seven eight {turn}"}
        for turn in range(len(deeds))
    ]
    for turn, (deed, shorter) in enumerate(zip(deeds, texts, strict=True)):
        # Longer every second time, so that there is something to delete each time.
        now = shorter if turn % 2 == 0 else {**TEXTS, "new": f"six seven {turn}"}
        index.server.plan.next_call(at=route, do=deed)
        try:
            index.ingest(now)
        except EmbedmillError:
            index.ingest(now)
        assert stored(index) == expected(index), deed
        assert aliases(index) == published(index), deed
        index.server.plan.clear()


FIRST_FAULTS = {
    "schema.create": "html-200 not-leader",
    "aliases.create": "drop-reply not-leader",
    "shards": "html-502",
    "objects.batch": "memory",
}


@pytest.mark.parametrize(
    ("route", "deed"),
    [(route, deed) for route, deeds in FIRST_FAULTS.items() for deed in deeds.split()],
)
def test_a_first_run_outlives_a_fault_anywhere(index, route, deed):
    index.server.plan.next_call(at=route, do=deed)
    try:
        index.ingest(TEXTS)
    except EmbedmillError:
        index.ingest(TEXTS)
    assert index.server.plan.calls[route]
    assert stored(index) == expected(index)
    assert aliases(index) == published(index)


def test_what_the_server_confirmed_and_lost_fails_the_run(index):
    index.server.plan.next_call(at="objects.batch", do="silent-drop", count=1)
    with pytest.raises(StopRunError) as failed:
        index.ingest(TEXTS)
    assert failed.value.code == "counts-mismatch"


def test_what_the_server_refuses_becomes_letters_and_the_rest_is_published(index):
    index.server.plan.next_call(at="objects.batch", do="poison", times=0, value="three four 7")
    index.ingest({**TEXTS, "d7": "three four 7"})
    letters = index.letters()
    assert [(letter.doc_id, letter.code) for letter in letters] == [("d7", "refused-by-store")]
    assert stored(index) == expected(index)


def test_a_server_that_is_down_ends_the_run_with_all_it_had_kept(index):
    index.ingest(TEXTS)
    index.server.plan.next_call(at="objects.batch", do="error", times=0)
    changed = {**TEXTS, "new": "six seven"}
    with pytest.raises(StopRunError):
        index.ingest(changed)
    index.server.plan.clear()
    index.ingest(changed)
    assert stored(index) == expected(index)


def test_an_audit_puts_right_what_was_done_to_the_objects(index):
    index.ingest(TEXTS)
    objects = index.server.state.get(class_name(index.version.collection)).objects[""]
    gone, twisted, turned, text = list(objects)[:4]
    foreign = objects.pop(gone)
    objects[str(UUID(int=7))] = foreign
    objects[twisted].properties["embedmill_rest"] = '{"uri":"elsewhere"}'
    objects[turned].vectors["default"] = -objects[turned].vectors["default"]
    objects[text].properties["text"] = "somebody else's words"
    options = RunOptions(clock=index.clock, sleep=index.clock.sleep)
    with index.seams():
        found = audit(index.settings, options, repair=True)
        assert found.counts == {"missing": 1, "stale": 2, "other-vector": 1, "duplicate": 1}
        assert audit(index.settings, options).clean
    assert stored(index) == expected(index)
    assert aliases(index) == published(index)
