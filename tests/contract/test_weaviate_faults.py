"""Every fault of a Weaviate server at every change: which error, and what a second try leaves."""

import time

import pytest

pytest.importorskip("weaviate")

from store_rig import (
    DONE,
    check_confirmed_and_lost,
    check_deletion_that_fails,
    check_lagging_count,
    check_switch_that_fails,
    check_upsert_that_fails,
    ids_of,
)
from weaviate_rig import Rig, as_text, quick_clients, record_ids, records

from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    StopRunError,
    TransientError,
)
from embedmill.testing.counting_store_contract import UNIT
from embedmill.vector_stores.weaviate_names import class_name

# What is planned, and what it must end as; whatever a call does.
REFUSALS = [
    ("rate-limit", {}, RateLimitedError),
    ("bad-key", {}, StopRunError),
    ("forbidden", {}, StopRunError),
    ("error", {}, OutcomeUnknownError),
    ("not-leader", {}, OutcomeUnknownError),
    ("html-502", {}, OutcomeUnknownError),
    ("drop", {}, OutcomeUnknownError),
    ("slow", {"seconds": 3600}, OutcomeUnknownError),
]
# The work is done, and the reply does not say so.
SILENCES = [
    ("drop-reply", {}),
    ("slow-reply", {"seconds": 3600}),
    ("cut-reply", {}),
    ("error-reply", {}),
]
GRPC_FAULTS = [
    *REFUSALS,
    ("unavailable", {}, OutcomeUnknownError),
    ("partial", {}, OutcomeUnknownError),
    *((*silence, OutcomeUnknownError) for silence in SILENCES),
]
# Said of each object, in a reply that is a success.
OF_OBJECTS = [
    ("read-only", {}, StopRunError),
    ("disk-full", {}, StopRunError),
    ("memory", {}, OutcomeUnknownError),
    ("replicas", {}, OutcomeUnknownError),
    ("refuse-all", {}, StopRunError),
    ("wrong-index", {}, OutcomeUnknownError),
]


@pytest.fixture
def rig(monkeypatch):
    quick_clients(monkeypatch)
    rig = Rig()
    rig.server.__enter__()
    yield rig
    rig.close()


WRITE_FAULTS = [*GRPC_FAULTS, *OF_OBJECTS]


@pytest.mark.parametrize(("deed", "more", "kind"), WRITE_FAULTS, ids=ids_of(WRITE_FAULTS))
def test_an_upsert_that_fails_ends_in_its_error_and_a_second_one_completes_it(
    rig, deed, more, kind
):
    check_upsert_that_fails(rig, "objects.batch", kind, call=1, deed=deed, **more)


@pytest.mark.parametrize(("deed", "more", "kind"), GRPC_FAULTS, ids=ids_of(GRPC_FAULTS))
def test_a_deletion_that_fails_ends_in_its_error_and_a_second_one_completes_it(
    rig, deed, more, kind
):
    check_deletion_that_fails(rig, "objects.delete", kind, deed=deed, **more)


ALIAS_FAULTS = [
    *REFUSALS,
    ("unavailable", {}, TransientError),
    ("disk-full", {}, StopRunError),
    ("read-only", {}, StopRunError),
    ("html-200", {}, OutcomeUnknownError),
    *((*silence, DONE) for silence in SILENCES if silence[0] != "cut-reply"),
]


@pytest.mark.parametrize(("deed", "more", "kind"), ALIAS_FAULTS, ids=ids_of(ALIAS_FAULTS))
def test_a_switch_that_fails_leaves_the_old_target_or_the_new_and_never_none(rig, deed, more, kind):
    check_switch_that_fails(rig, kind, deed=deed, **more)


READS = {
    "aggregate": lambda store: store.count("notes"),
    "search": lambda store: store.search("notes", records(1).vectors[0], 3)[0].id,
    "schema.list": lambda store: store.collections(),
    "aliases.get": lambda store: store.alias_target("live"),
}


@pytest.mark.parametrize("route", READS)
@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        ("rate-limit", RateLimitedError),
        ("error", TransientError),
        ("html-502", TransientError),
        ("drop", TransientError),
        ("cut-reply", TransientError),
        ("bad-key", StopRunError),
    ],
)
def test_a_question_without_an_answer_changes_nothing_and_may_be_asked_again(
    rig, route, deed, kind
):
    store = rig.filled(5)
    right = READS[route](store)
    # More often than the client repeats it.
    rig.plan(route, deed, times=6)
    with pytest.raises(kind) as failure:
        READS[route](store)
    assert type(failure.value) is kind
    rig.server.plan.clear()
    assert READS[route](store) == right


@pytest.mark.parametrize("route", ["schema.list", "aliases.get", "schema.get", "meta"])
def test_a_page_of_a_proxy_is_no_answer(rig, route):
    rig.filled(3)
    rig.plan(route, "html-200")

    def read():
        store = rig.store()
        store.collections()
        store.count("notes")

    with pytest.raises(TransientError):
        read()
    read()


def test_a_server_that_is_away_has_been_sent_nothing(rig):
    store = rig.filled(3)
    rig.server.pause()
    for change in (
        lambda: store.upsert("notes", records(9)),
        lambda: store.delete("notes", record_ids(2)),
        lambda: rig.store().count("notes"),
    ):
        with pytest.raises(TransientError) as away:
            change()
        assert away.value.code == "not-sent"
    with pytest.raises(TransientError):
        store.collections()
    rig.server.resume()
    # gRPC asks a server that was away again only after a moment, as a run does.
    for _ in range(200):
        try:
            store.upsert("notes", records(9))
            break
        except TransientError:
            time.sleep(0.05)
    assert rig.ids() == as_text(record_ids(9))


def test_objects_that_were_confirmed_and_lost_show_in_the_count_and_come_with_a_second_try(rig):
    check_confirmed_and_lost(rig, "objects.batch")


def test_a_count_that_lags_is_given_as_the_server_gives_it(rig):
    check_lagging_count(rig, "aggregate")


def test_objects_that_are_refused_are_rejected_with_the_servers_words_and_the_rest_is_stored(rig):
    store = rig.filled(0, records_per_request=8)
    rig.plan("objects.batch", "poison", times=0, value="text 7")
    batch = records(20)
    batch.vectors[3] = 0
    rejections = store.upsert("notes", batch)
    assert [(one.row, one.code) for one in rejections] == [
        (3, "zero-vector"),
        (7, "refused-by-store"),
    ]
    assert "cannot be indexed" in rejections[1].message
    # No other request was needed to find it.
    assert rig.calls("objects.batch") == 3
    assert len(rig.ids()) == 18


def test_a_single_object_that_is_refused_is_rejected(rig):
    store = rig.filled(0)
    rig.plan("objects.batch", "refuse-all")
    assert [one.row for one in store.upsert("notes", records(1))] == [0]


def test_a_request_that_is_too_large_after_all_is_halved(rig):
    store = rig.filled(0)
    rig.plan("objects.batch", "too-large")
    assert list(store.upsert("notes", records(10))) == []
    assert rig.calls("objects.batch") == 3
    assert len(rig.ids()) == 10


@pytest.mark.parametrize("deed", ["drop-reply", "error-reply", "cut-reply", "drop", "error"])
def test_a_creation_without_a_reply_is_completed_by_a_second_one(rig, deed):
    store = rig.store()
    rig.plan("schema.create", deed)
    with pytest.raises(OutcomeUnknownError):
        store.create_collection("notes", UNIT)
    store.create_collection("notes", UNIT)
    store.upsert("notes", records(3))
    assert rig.ids() == as_text(record_ids(3))


@pytest.mark.parametrize("deed", ["drop-reply", "error-reply", "html-200", "drop"])
def test_a_drop_without_a_reply_is_completed_by_a_second_one(rig, deed):
    store = rig.filled(3)
    rig.plan("schema.delete", deed)
    with pytest.raises(OutcomeUnknownError):
        store.drop_collection("notes")
    store.drop_collection("notes")
    assert class_name("notes") not in rig.state.classes


def test_two_writers_that_create_a_collection_at_once_both_go_on(rig):
    one, other = rig.store(), rig.filled(3)
    definition = rig.state.classes.pop(class_name("notes"))
    one._connection.definition = lambda name: rig.state.classes.get(name) and definition.definition
    looked = one._connection.definition
    rig.server.plan.calls.clear()

    def look_and_be_overtaken(name):
        found = looked(name)
        rig.state.classes[class_name("notes")] = definition
        return found

    one._connection.definition = look_and_be_overtaken
    one.create_collection("notes", UNIT)
    assert rig.calls("schema.create") == 1
    assert other.count("notes") == one.count("notes") == 3


def test_a_message_of_the_server_never_carries_the_key(monkeypatch):
    monkeypatch.setenv("WEAVIATE_KEY", "zebra-crossing")
    rig = Rig(api_key="zebra-crossing")
    with rig.server:
        store = rig.filled(0, api_key="${WEAVIATE_KEY}")
        rig.plan("objects.batch", "poison", value="zebra-crossing")
        rejection = store.upsert("notes", records(1, text="zebra-crossing"))[0]
        assert "***" in rejection.message
        assert "zebra" not in rejection.message
        store.close()


@pytest.mark.parametrize("key", ["", "another"])
def test_a_key_that_is_not_taken_stops_the_run(monkeypatch, key):
    monkeypatch.setenv("WEAVIATE_KEY", key or "x")
    rig = Rig(api_key="zebra-crossing")
    with rig.server:
        store = rig.store(api_key="${WEAVIATE_KEY}" if key else None)
        with pytest.raises(StopRunError) as stop:
            store.collections()
        assert stop.value.code == "credentials"
        store.close()
