"""Every fault of a Qdrant server at every change: which error, and what a second try leaves."""

import time
from email.utils import formatdate

import pytest

pytest.importorskip("qdrant_client")

from qdrant_rig import Rig, as_text, record_ids, records
from store_rig import (
    DONE,
    check_confirmed_and_lost,
    check_deletion_that_fails,
    check_lagging_count,
    check_switch_that_fails,
    check_upsert_that_fails,
    ids_of,
)

from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.testing.counting_store_contract import UNIT

# What is planned, and what it must end as.
REPLIES = [
    ("rate-limit", {"value": "7"}, RateLimitedError),
    ("rate-limit", {"value": ""}, RateLimitedError),
    ("error", {}, OutcomeUnknownError),
    ("error", {"value": "408"}, OutcomeUnknownError),
    ("error", {"value": "504"}, OutcomeUnknownError),
    ("error", {"value": "503"}, TransientError),
    ("html-502", {}, OutcomeUnknownError),
    ("html-200", {}, OutcomeUnknownError),
    ("drop", {}, OutcomeUnknownError),
    ("slow", {"seconds": 3600}, OutcomeUnknownError),
    ("bad-key", {}, StopRunError),
    ("forbidden", {}, StopRunError),
    ("read-only", {}, StopRunError),
    ("read-only", {"value": "503"}, StopRunError),
    ("disk-full", {}, StopRunError),
    ("disk-full", {"value": "507"}, StopRunError),
    ("not-found", {}, RefusedError),
]
# The work is done, and the reply does not say so.
SILENCES = [
    ("drop-reply", {}),
    ("slow-reply", {"seconds": 3600}),
    ("cut-reply", {}),
    ("error-reply", {}),
    ("error-reply", {"value": "502"}),
]
UNCONFIRMED = [("acknowledged", {}), ("wait-timeout", {}), ("partial", {})]


@pytest.fixture
def rig(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    rig = Rig()
    rig.server.__enter__()
    yield rig
    rig.close()


WRITE_FAULTS = [
    *REPLIES,
    *((*silence, OutcomeUnknownError) for silence in (*SILENCES, *UNCONFIRMED)),
]


@pytest.mark.parametrize(("deed", "more", "kind"), WRITE_FAULTS, ids=ids_of(WRITE_FAULTS))
def test_an_upsert_that_fails_ends_in_its_error_and_a_second_one_completes_it(
    rig, deed, more, kind
):
    check_upsert_that_fails(rig, "points.upsert", kind, call=2, deed=deed, **more)


@pytest.mark.parametrize(("deed", "more", "kind"), WRITE_FAULTS, ids=ids_of(WRITE_FAULTS))
def test_a_deletion_that_fails_ends_in_its_error_and_a_second_one_completes_it(
    rig, deed, more, kind
):
    check_deletion_that_fails(rig, "points.delete", kind, deed=deed, **more)


ALIAS_FAULTS = [*REPLIES, *((*silence, DONE) for silence in SILENCES)]


@pytest.mark.parametrize(("deed", "more", "kind"), ALIAS_FAULTS, ids=ids_of(ALIAS_FAULTS))
def test_a_switch_that_fails_leaves_the_old_target_or_the_new_and_never_none(rig, deed, more, kind):
    check_switch_that_fails(rig, kind, deed=deed, **more)


READS = {
    "points.count": lambda store: store.count("notes"),
    "points.retrieve": lambda store: store.fetch("notes", record_ids(3)).ids,
    "points.query": lambda store: store.search("notes", records(1).vectors[0], 3)[0].id,
    "points.scroll": lambda store: sorted(store.ids("notes")),
    "collections.list": lambda store: store.collections(),
    "aliases.list": lambda store: store.alias_target("live"),
}


@pytest.mark.parametrize("route", READS)
@pytest.mark.parametrize(
    ("deed", "more", "kind"),
    [
        ("rate-limit", {"value": "3"}, RateLimitedError),
        ("error", {}, TransientError),
        ("html-502", {}, TransientError),
        ("html-200", {}, TransientError),
        ("drop", {}, TransientError),
        ("cut-reply", {}, TransientError),
        ("bad-key", {}, StopRunError),
    ],
    ids=str,
)
def test_a_question_without_an_answer_changes_nothing_and_may_be_asked_again(
    rig, route, deed, more, kind
):
    store = rig.filled(5)
    right = READS[route](store)
    rig.plan(route, deed, call=2, **more)
    with pytest.raises(kind) as failure:
        READS[route](store)
    assert type(failure.value) is kind
    assert READS[route](store) == right


@pytest.mark.parametrize(
    ("value", "wait"), [("7", 7.0), ("0", 0.0), ("1.5", 1.5), ("soon", None), ("", None)]
)
def test_a_rate_limit_says_how_long_to_wait(rig, value, wait):
    store = rig.filled(0)
    rig.plan("points.upsert", "rate-limit", value=value)
    with pytest.raises(RateLimitedError) as limited:
        store.upsert("notes", records(1))
    assert limited.value.retry_after == wait


def test_a_wait_may_be_given_as_a_date(rig):
    store = rig.filled(0)
    rig.plan("points.upsert", "rate-limit", value=formatdate(time.time() + 90, usegmt=True))
    with pytest.raises(RateLimitedError) as limited:
        store.upsert("notes", records(1))
    assert 60 < limited.value.retry_after <= 90


def test_a_server_that_is_away_has_been_sent_nothing(rig):
    store = rig.filled(3)
    rig.server.pause()
    for change in (
        lambda: store.upsert("notes", records(9)),
        lambda: store.delete("notes", record_ids(2)),
        lambda: store.count("notes"),
    ):
        with pytest.raises(TransientError) as away:
            change()
        assert away.value.code == "not-sent"
    rig.server.resume()
    store.upsert("notes", records(9))
    assert rig.ids() == as_text(record_ids(9))


def test_points_that_were_confirmed_and_lost_show_in_the_count_and_come_with_a_second_try(rig):
    check_confirmed_and_lost(rig, "points.upsert")


def test_a_count_that_lags_is_given_as_the_server_gives_it(rig):
    check_lagging_count(rig, "points.count")


@pytest.mark.parametrize("deed", ["drop-reply", "error-reply", "cut-reply"])
def test_a_creation_without_a_reply_is_completed_by_a_second_one(rig, deed):
    store = rig.store()
    rig.plan("collections.create", deed)
    with pytest.raises(OutcomeUnknownError):
        store.create_collection("notes", UNIT)
    store.create_collection("notes", UNIT)
    described = rig.server.state.described("notes")
    assert set(described["payload_schema"]) == {"doc_id", "chunk_index"}


def test_a_creation_that_broke_off_before_its_indexes_is_completed(rig):
    store = rig.store()
    rig.plan("index.create", "error", call=2)
    with pytest.raises(OutcomeUnknownError):
        store.create_collection("notes", UNIT)
    rig.store().create_collection("notes", UNIT)
    described = rig.server.state.described("notes")
    assert set(described["payload_schema"]) == {"doc_id", "chunk_index"}


def test_a_message_of_the_server_never_carries_the_key(rig, monkeypatch):
    monkeypatch.setenv("QDRANT_KEY", "zebra-crossing")
    store = rig.filled(0, api_key="${QDRANT_KEY}")
    rig.plan("points.upsert", "poison", value="zebra-crossing")
    rejection = store.upsert("notes", records(1, text="zebra-crossing"))[0]
    assert "***" in rejection.message
    assert "zebra" not in rejection.message
