"""What goes wrong between a store and Pinecone: the right error, and all of it after a rerun."""

import pickle

import numpy as np
import orjson
import pytest

pytest.importorskip("pinecone")

from pinecone_rig import INDEX, KEY, Fault, rigs

from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.testing.counting_store_contract import UNIT, a_batch, record_ids, unit_vectors
from embedmill.testing.pinecone_fake_index import Namespace
from embedmill.vector_store import CollectionSpec, StoreLimits
from embedmill.vector_stores.pinecone_writing import BatchWriter


@pytest.fixture
def make_rig(monkeypatch):
    with rigs(monkeypatch) as make:
        yield make


@pytest.fixture
def rig(make_rig):
    return make_rig()


def texts(ids):
    return {str(record) for record in ids}


WRITE_TROUBLES = [
    ("rate-limit", {"value": "7"}, RateLimitedError, "rate-limited"),
    ("month-limit", {}, StopRunError, "quota"),
    ("quota", {}, StopRunError, "quota"),
    ("no-money", {}, StopRunError, "quota"),
    ("bad-key", {}, StopRunError, "credentials"),
    ("forbidden", {}, StopRunError, "credentials"),
    ("error", {"status": 503}, TransientError, "server"),
    ("error", {"status": 500}, OutcomeUnknownError, "outcome-unknown"),
    ("error", {"status": 504}, OutcomeUnknownError, "outcome-unknown"),
    ("error", {"status": 408}, OutcomeUnknownError, "outcome-unknown"),
    ("html-502", {}, OutcomeUnknownError, "outcome-unknown"),
    ("html-200", {}, OutcomeUnknownError, "outcome-unknown"),
    ("drop", {}, OutcomeUnknownError, "outcome-unknown"),
    ("drop-reply", {}, OutcomeUnknownError, "outcome-unknown"),
    ("cut-reply", {}, OutcomeUnknownError, "outcome-unknown"),
    ("slow-reply", {"seconds": 3600}, OutcomeUnknownError, "outcome-unknown"),
]


def hurried(rig, do):
    """The store that meets a trouble. It waits a second at most where that is to outlast it."""
    return rig.store(**({"timeout_s": 1.0} if do == "slow-reply" else {}))


IDS = [f"{do}{more.get('status', '')}" for do, more, *_ in WRITE_TROUBLES]


@pytest.mark.parametrize(("do", "more", "kind", "code"), WRITE_TROUBLES, ids=IDS)
def test_a_write_that_fails_says_what_to_do_and_is_whole_after_a_rerun(rig, do, more, kind, code):
    store = rig.with_notes()
    rig.plan("vectors.upsert", do, **more)
    asked = rig.calls("vectors.upsert")
    with pytest.raises(kind) as trouble:
        hurried(rig, do).upsert("notes", a_batch(20))
    assert trouble.value.code == code
    # Nothing was repeated behind our back.
    assert rig.calls("vectors.upsert") == asked + 1
    assert pickle.loads(pickle.dumps(trouble.value)).code == code
    assert list(store.upsert("notes", a_batch(20))) == []
    assert rig.written() == texts(record_ids(20))
    assert store.count("notes") == 20


# A delete has no reply to read.
@pytest.mark.parametrize(
    ("do", "more", "kind"),
    [(do, more, kind) for do, more, kind, _ in WRITE_TROUBLES if do != "html-200"],
    ids=[name for name in IDS if name != "html-200"],
)
def test_a_delete_that_fails_says_what_to_do_and_is_whole_after_a_rerun(rig, do, more, kind):
    store = rig.with_notes()
    store.upsert("notes", a_batch(10))
    rig.plan("vectors.delete", do, **more)
    with pytest.raises(kind):
        hurried(rig, do).delete("notes", record_ids(5))
    store.delete("notes", record_ids(5))
    assert rig.written() == texts(record_ids(10)[5:])


def test_a_rate_limit_says_how_long_to_wait(rig):
    store = rig.with_notes()
    rig.plan("vectors.upsert", "rate-limit", value="7")
    with pytest.raises(RateLimitedError) as trouble:
        store.upsert("notes", a_batch(1))
    assert trouble.value.retry_after == 7


@pytest.mark.parametrize("do", ["html-502", "html-200", "drop", "drop-reply", "error"])
@pytest.mark.parametrize(
    ("route", "read"),
    [
        ("vectors.query", lambda store: store.search("notes", unit_vectors(1)[0], 3)),
        ("vectors.fetch", lambda store: store.fetch("notes", record_ids(3))),
        ("vectors.list", lambda store: list(store.ids("notes"))),
        ("stats", lambda store: store.count("notes")),
        ("aliases.get", lambda store: store.alias_target("live")),
        ("namespaces.list", lambda store: store.collections()),
    ],
)
def test_a_read_that_fails_changed_nothing_and_may_be_repeated(rig, route, read, do):
    store = rig.with_notes()
    store.upsert("notes", a_batch(3))
    rig.plan(route, do)
    with pytest.raises(TransientError):
        read(store)
    read(store)


def test_a_server_that_is_not_there_is_waited_for(rig):
    store = rig.store(control_url="http://127.0.0.1:9")
    with pytest.raises(TransientError):
        store.create_collection("notes", UNIT)


def test_a_record_that_only_the_server_refuses_is_found_alone(rig):
    store = rig.with_notes(records_per_request=64)
    bad = str(record_ids(64)[41])
    rig.plan("vectors.upsert", "refuse-id", times=0, value=bad)
    asked = rig.calls("vectors.upsert")
    rejections = store.upsert("notes", a_batch(64))
    assert [(r.row, r.code) for r in rejections] == [(41, "refused-by-store")]
    assert "cannot be indexed" in rejections[0].message
    assert rig.written() == texts(record_ids(64)) - {bad}
    assert rig.calls("vectors.upsert") - asked <= 2 * 6 + 1


def test_two_bad_records_and_our_own_rejections_come_back_in_order(rig):
    store = rig.with_notes(records_per_request=16)
    ids = record_ids(20)
    for row in (3, 18):
        rig.plan("vectors.upsert", "refuse-id", times=0, value=str(ids[row]))
    batch = a_batch(20)
    batch.vectors[7] = 0
    batch.payloads[11]["text"] = "ü" * 30_000
    rejections = store.upsert("notes", batch)
    assert [(r.row, r.code) for r in rejections] == [
        (3, "refused-by-store"),
        (7, "zero-vector"),
        (11, "payload-too-large"),
        (18, "refused-by-store"),
    ]
    assert rig.written() == texts(ids[row] for row in range(20) if row not in {3, 7, 11, 18})


def test_a_payload_that_is_too_large_only_as_metadata_is_rejected_before_the_wire(rig):
    store = rig.with_notes()
    # Whole numbers beyond 2**53 are there once more as tokens.
    payload = {"many": [2**60 + at for at in range(1500)]}
    rejections = store.upsert("notes", a_batch(2, payloads=[payload, {}]))
    assert [(r.row, r.code) for r in rejections] == [(0, "payload-too-large")]
    assert rig.written() == texts(record_ids(2)[1:])


def test_a_request_that_is_too_large_after_all_is_halved(rig):
    store = rig.with_notes()
    rig.plan("vectors.upsert", "too-large")
    assert list(store.upsert("notes", a_batch(5))) == []
    assert rig.written() == texts(record_ids(5))


def test_requests_are_packed_by_their_bytes(rig):
    store = rig.store(request_bytes=100_000, records_per_request=1000)
    store.create_collection("notes", CollectionSpec(1536, "cosine", normalised=True))
    batch = a_batch(60)
    vectors = unit_vectors(60, dimension=1536)
    asked = rig.calls("vectors.upsert")
    assert list(store.upsert("notes", type(batch)(batch.ids, vectors, batch.payloads))) == []
    # 1,536 float32 as shortest decimals are 19 KB; as doubles they would be 33 KB.
    assert 12 <= rig.calls("vectors.upsert") - asked <= 15
    assert np.array_equal(store.fetch("notes", batch.ids).vectors, vectors)


@pytest.mark.parametrize(
    "lengths",
    [
        [10] * 40 + [3_000] * 40,
        [3_000] * 40 + [10] * 40,
        [10, 9_000, 10] * 20,
        [30_000, 10, 30_000],
        [10],
    ],
)
def test_no_request_is_over_its_limit_however_the_sizes_of_records_differ(lengths):
    limits = StoreLimits(records=30, request_bytes=20_000, payload_bytes=40_000, writers=1)
    sent = []

    def put(body, count):
        assert len(body) <= limits.request_bytes or count == 1
        assert len(orjson.loads(body)["vectors"]) == count <= limits.records
        sent.extend(record["id"] for record in orjson.loads(body)["vectors"])
        return count

    batch = a_batch(len(lengths), payloads=[{"text": "x" * length} for length in lengths])
    assert BatchWriter("notes", put, limits).write(batch) == {}
    assert sent == list(map(str, batch.ids))


@pytest.mark.parametrize("count", [2, 500])
def test_a_store_that_takes_nothing_stops_the_run_soon(rig, count):
    store = rig.with_notes(records_per_request=1000)
    rig.plan("vectors.upsert", "error", times=0, status=400, value="no such thing")
    asked = rig.calls("vectors.upsert")
    with pytest.raises(StopRunError, match="no such thing"):
        store.upsert("notes", a_batch(count))
    assert rig.calls("vectors.upsert") - asked < 60


def test_a_single_record_that_is_refused_is_rejected(rig):
    store = rig.with_notes()
    rig.plan("vectors.upsert", "error", status=400, value="no such thing")
    assert [r.row for r in store.upsert("notes", a_batch(1))] == [0]


def test_the_key_is_covered_in_what_the_server_says(rig):
    store = rig.with_notes()
    rig.plan("vectors.upsert", "error", status=400, value="the key {key} may not")
    rejection = store.upsert("notes", a_batch(1))[0]
    assert KEY not in rejection.message
    assert "***" in rejection.message


def test_a_write_that_was_taken_in_part_is_completed(rig):
    store = rig.with_notes()
    rig.plan("vectors.upsert", "store-some", count=2)
    assert list(store.upsert("notes", a_batch(5))) == []
    assert rig.written() == texts(record_ids(5))


def test_a_record_that_is_never_stored_is_rejected(rig):
    store = rig.with_notes()
    store.upsert("notes", a_batch(3))
    rig.plan("vectors.upsert", "store-some", times=0, count=0)
    rejections = store.upsert("notes", a_batch(1))
    assert [(r.row, r.code) for r in rejections] == [(0, "not-stored")]


def test_a_server_that_lies_about_a_write_is_found_out_by_the_count(rig):
    store = rig.with_notes()
    rig.plan("vectors.upsert", "store-none")
    assert list(store.upsert("notes", a_batch(10))) == []
    assert store.count("notes") == 5


def test_an_index_is_created_and_waited_for(make_rig):
    rig = make_rig(ready_after=3)
    rig.with_notes(time=rig.clock)
    assert rig.server.indexes[INDEX].vectors == {
        "type": "dense_vector",
        "dimension": 16,
        "metric": "cosine",
    }
    assert rig.server.indexes[INDEX].deployment["region"] == "us-east-1"
    assert rig.clock.now == 3


def test_an_index_that_is_never_ready_is_not_waited_for_for_ever(make_rig):
    rig = make_rig(ready_after=10_000)
    with pytest.raises(TransientError, match="Initializing"):
        rig.with_notes(time=rig.clock)
    assert rig.clock.now == 300


def test_an_index_that_may_not_be_created_is_refused_with_what_to_do(rig):
    with pytest.raises(RefusedError, match="create_index is false") as refusal:
        rig.with_notes(create_index=False)
    assert "dimension 16 and metric cosine" in refusal.value.hint


def test_a_project_without_room_for_an_index_stops_the_run(make_rig):
    rig = make_rig(most_indexes=0)
    with pytest.raises(StopRunError) as stop:
        rig.with_notes()
    assert stop.value.code == "quota"


def test_two_writers_that_create_the_index_at_once_both_go_on(rig):
    rig.with_notes()
    asked = rig.calls("indexes.get")
    # The first look connects; the second is the one before creating.
    rig.server.plan.add(Fault(at="indexes.get", do="error", status=404, call=asked + 2))
    rig.store().create_collection("more", UNIT)
    assert rig.calls("indexes.create") == 2


@pytest.mark.parametrize(
    "route", ["indexes.create", "vectors.upsert", "namespaces.create", "namespaces.get"]
)
@pytest.mark.parametrize("do", ["drop", "drop-reply", "error"])
def test_creating_goes_on_where_it_was_cut_off(rig, route, do):
    rig.plan(route, do)
    with pytest.raises((OutcomeUnknownError, TransientError)):
        rig.with_notes()
    store = rig.with_notes()
    assert list(store.upsert("notes", a_batch(3))) == []
    assert store.count("notes") == 3


@pytest.mark.parametrize("route", ["namespaces.delete", "vectors.delete"])
@pytest.mark.parametrize("do", ["drop", "drop-reply", "error"])
def test_dropping_goes_on_where_it_was_cut_off(rig, route, do):
    store = rig.with_notes()
    store.upsert("notes", a_batch(3))
    rig.plan(route, do)
    with pytest.raises(OutcomeUnknownError):
        store.drop_collection("notes")
    store.drop_collection("notes")
    assert list(store.collections()) == []
    store.create_collection("notes", CollectionSpec(16, "cosine", normalised=False))
    assert store.count("notes") == 0


@pytest.mark.parametrize("route", ["aliases.repoint", "aliases.create"])
@pytest.mark.parametrize("do", ["drop", "drop-reply", "error"])
def test_pointing_an_alias_goes_on_where_it_was_cut_off(rig, route, do):
    store = rig.with_notes()
    rig.plan(route, do)
    with pytest.raises(OutcomeUnknownError):
        store.set_alias("live", "notes")
    store.set_alias("live", "notes")
    assert store.alias_target("live") == "notes"


def test_two_that_make_one_alias_at_once_both_go_on(rig):
    store = rig.with_notes()
    store.create_collection("newer", UNIT)
    store.set_alias("live", "notes")
    rig.plan("aliases.repoint", "error", status=404)
    store.set_alias("live", "newer")
    assert store.alias_target("live") == "newer"


def test_a_namespace_of_somebody_else_is_left_alone(rig):
    store = rig.with_notes()
    index = rig.server.indexes[INDEX]
    index.namespaces["theirs"] = Namespace(index.options)
    assert list(store.collections()) == ["notes"]
    for call in (
        lambda: store.create_collection("theirs", UNIT),
        lambda: store.upsert("theirs", a_batch(1)),
        lambda: store.drop_collection("theirs"),
        lambda: store.count("theirs"),
    ):
        with pytest.raises(RefusedError):
            call()
    assert "theirs" in index.namespaces


def test_a_collection_that_another_process_dropped_is_missed(rig):
    store, other = rig.with_notes(), rig.store()
    other.drop_collection("notes")
    with pytest.raises(RefusedError, match="notes"):
        store.search("notes", unit_vectors(1)[0], 1)
    with pytest.raises(RefusedError, match="notes"):
        store.count("notes")


def test_more_results_than_a_query_gives_are_refused(rig):
    store = rig.with_notes()
    with pytest.raises(RefusedError, match="10,000"):
        store.search("notes", unit_vectors(1)[0], 10_001)
