"""Whole runs into a Qdrant server, with every fault at every change in turn."""

import pytest

pytest.importorskip("qdrant_client")

from embedmill.errors import EmbedmillError, StopRunError
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.run_report import RunReport
from embedmill.testing.qdrant_server import Fault, QdrantServer
from embedmill.vector_stores.qdrant import QdrantStore
from pipelines.summary import summary

TEXTS = {f"d{number}": f"one two three four five {number}" for number in range(12)}


@pytest.fixture
def index(small_index, plain_http):
    """A small index whose store is on a fake server."""
    index = small_index()
    with QdrantServer() as server:
        values = {"kind": "qdrant", "url": server.url, "records_per_request": 4}
        settings = QdrantServerSettings.model_validate(values)
        index.wrappers["store"] = lambda _: QdrantStore(settings)
        index.server = server
        index.store = QdrantStore(settings)
        yield index
        index.store.close()


def stored(index):
    return {str(one) for one in index.server.ids(index.version.collection)}


def expected(index):
    return {str(one) for one in index.expected_ids()}


def test_a_run_fills_publishes_and_keeps_up(index):
    index.ingest(TEXTS)
    assert stored(index) == expected(index)
    assert index.server.state.aliases == {"small": index.version.collection}
    requests = len(index.server.requests)
    changed = {**TEXTS, "d1": "one", "new": "six seven eight nine ten"}
    del changed["d2"]
    index.ingest(changed)
    assert stored(index) == expected(index)
    assert len(stored(index)) == index.store.count("small")
    assert len(index.server.requests) > requests
    vector = index.store.fetch("small", list(index.expected_ids())).vectors[0]
    hits = index.store.search("small", vector, 3)
    assert hits[0].score == pytest.approx(1, abs=1e-5)


DEEDS = [
    "drop",
    "drop-reply",
    "error",
    "error-reply",
    "html-502",
    "cut-reply",
    "rate-limit",
    "acknowledged",
    "wait-timeout",
    "partial",
    "bad-key",
    "disk-full",
    "read-only",
]


def ingest_until_it_succeeds(index, texts, *, runs):
    """Each failed run has met at least one of the planned faults."""
    for _ in range(runs - 1):
        try:
            return index.ingest(texts)
        except EmbedmillError:
            continue
    return index.ingest(texts)


def plan_at_each(index, routes, deed):
    """The next call of every route goes wrong; how often each was called so far."""
    for route in routes:
        index.server.plan.next_call(at=route, do=deed)
    return {route: index.server.plan.calls[route] for route in routes}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_fault_while_a_collection_is_made_costs_at_most_another_run(index, deed):
    routes = ["collections.create", "index.create", "aliases.update"]
    plan_at_each(index, routes, deed)
    ingest_until_it_succeeds(index, TEXTS, runs=len(routes) + 1)
    assert all(index.server.plan.calls[route] for route in routes)
    assert stored(index) == expected(index)
    assert index.server.state.aliases == {"small": index.version.collection}


@pytest.mark.parametrize("turn", range(4))
def test_a_fault_of_a_sync_costs_at_most_another_run(index, turn):
    routes = ["points.upsert", "points.delete", "points.count"]
    index.ingest(TEXTS)
    for number, deed in enumerate(DEEDS[turn::4]):
        # Longer every second time, so that there is something to delete each time.
        shorter = dict.fromkeys(TEXTS, "one two") | {"new": f"six seven eight nine {number}"}
        texts = shorter if number % 2 == 0 else {**TEXTS, "new": f"ten {number}"}
        before = plan_at_each(index, routes, deed)
        ingest_until_it_succeeds(index, texts, runs=len(routes) + 1)
        assert all(index.server.plan.calls[route] > before[route] for route in routes), deed
        assert stored(index) == expected(index), deed
        assert index.server.state.aliases == {"small": index.version.collection}
        index.server.plan.clear()


@pytest.mark.usefixtures("plain_http")
def test_a_run_says_how_often_the_store_had_too_much_to_do(small_index):
    with QdrantServer([Fault(at="points.upsert", do="rate-limit", value="0")]) as server:
        index = small_index(store={"kind": "qdrant", "url": server.url})
        report = index.ingest(TEXTS)
        assert stored_at(server, index) == expected(index)
    writes = report.writes
    assert (writes.rate_limited, writes.transient, writes.halvings) == (1, 1, 1)
    assert writes.requests == server.plan.calls["points.upsert"]
    assert 0 < writes.waited_s < 5
    told = "\n".join(summary(report))
    assert "1 too many at once; slowed down 1 time," in told
    assert RunReport.from_json(report.to_json()) == report


def stored_at(server, index):
    return {str(one) for one in server.ids(index.version.collection)}


WRITE_DEEDS = ["drop", "drop-reply", "error", "cut-reply", "wait-timeout"]


@pytest.mark.parametrize("turn", range(len(WRITE_DEEDS)))
def test_a_first_run_outlives_a_fault_at_every_write(index, turn):
    # Every second call, so that each of the first writes fails once, by turns in each way.
    for write in range(len(WRITE_DEEDS)):
        deed = WRITE_DEEDS[(write + turn) % len(WRITE_DEEDS)]
        index.server.plan.add(Fault(at="points.upsert", do=deed, call=2 * write + 1))
    index.ingest(TEXTS)
    assert index.server.plan.calls["points.upsert"] >= 2 * len(WRITE_DEEDS)
    assert stored(index) == expected(index)


def test_what_the_server_confirmed_and_lost_fails_the_run(index):
    index.server.plan.add(Fault(at="points.upsert", do="silent-drop", count=1))
    with pytest.raises(StopRunError) as failed:
        index.ingest(TEXTS)
    assert failed.value.code == "counts-mismatch"


def test_what_the_server_refuses_becomes_letters_and_the_rest_is_published(index):
    index.server.plan.add(Fault(at="points.upsert", do="poison", times=0, value="three four 7"))
    texts = {**TEXTS, "d7": "three four 7"}
    index.ingest(texts)
    letters = index.letters()
    assert [(letter.doc_id, letter.code) for letter in letters] == [("d7", "refused-by-store")]
    assert stored(index) == expected(index)


def test_a_server_that_is_down_ends_the_run_with_all_it_had_kept(index):
    index.ingest(TEXTS)
    index.server.plan.calls.clear()
    index.server.plan.add(Fault(at="points.upsert", do="error", times=0))
    changed = {**TEXTS, "new": "six seven"}
    with pytest.raises(StopRunError):
        index.ingest(changed)
    index.server.plan.clear()
    index.ingest(changed)
    assert stored(index) == expected(index)
