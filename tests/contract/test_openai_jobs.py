"""The real SDK against the fake server: jobs from their creation to their results."""

from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pytest

from embedmill.batch_provider import RequestFile
from embedmill.errors import RefusedError
from embedmill.testing.openai_server import Fault

TEXTS = {f"c{number}": f"text number {number}" for number in range(10)}
GROUPS = {f"g{number}": [f"text {number} {part}" for part in range(4)] for number in range(5)}


@pytest.mark.parametrize("texts", [TEXTS, GROUPS], ids=["one-text-each", "four-texts-each"])
@pytest.mark.parametrize("faults", [[], [Fault(at="job", do="as-floats")]], ids=["base64", "lists"])
def test_every_text_of_a_finished_job_has_its_own_vector(rig, read, texts, faults):
    rig = rig(*faults)
    provider = rig.provider()
    result = read(provider, rig.finished(provider, texts), texts)
    assert len(result.good) == sum(1 if isinstance(t, str) else len(t) for t in texts.values())
    assert (result.anomalies, result.missing, result.failed) == ({}, [], {})
    assert result.tokens == rig.server.bill.tokens


def test_a_job_is_pending_then_running_then_finalizing_then_succeeded(rig):
    rig = rig(polls_per_status=2)
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    states = [provider.state(job) for _ in range(8)]
    assert list(dict.fromkeys(state.status for state in states)) == [
        "pending",
        "running",
        "finalizing",
        "succeeded",
    ]
    assert [state.terminal for state in states] == [s.status == "succeeded" for s in states]
    assert states[-1].counts.completed == states[-1].counts.total == 10
    assert states[-1].tokens == rig.server.bill.tokens


def test_results_come_in_another_order_than_they_were_sent(rig):
    rig = rig()
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    order = [outcome.custom_id for outcome in provider.outcomes(job)]
    assert sorted(order) == sorted(TEXTS)
    assert order != list(TEXTS)


@pytest.mark.parametrize(
    ("deed", "kind", "code"),
    [
        ("reject-rows", "permanent", "invalid_request_error"),
        ("fail-rows", "retryable", "server_error"),
        ("broke-rows", "retryable", "insufficient-quota"),
    ],
)
def test_rows_of_the_error_file_are_sorted_by_whose_fault_it_was(rig, read, deed, kind, code):
    rig = rig(Fault(at="job", do=deed, count=2))
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    result = read(provider, job, TEXTS)
    assert len(result.good) == 8
    assert result.kinds == {(kind, code): 2}
    assert (result.anomalies, result.missing) == ({}, [])


def test_a_job_whose_rows_all_failed_has_no_output_and_is_read_all_the_same(rig, read):
    rig = rig(Fault(at="job", do="reject-rows", count=10))
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    state = provider.state(job)
    assert (state.status, state.output_file_id) == ("succeeded", None)
    result = read(provider, job, TEXTS)
    assert (len(result.good), len(result.failed)) == (0, 10)


@pytest.mark.parametrize(
    ("deed", "status", "kind", "code"),
    [
        ("expire", "expired", "expired", "batch_expired"),
        ("cancel", "cancelled", "retryable", "batch_cancelled"),
    ],
)
def test_what_was_done_before_the_end_is_kept(rig, read, deed, status, kind, code):
    rig = rig(Fault(at="job", do=deed, count=3))
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    assert provider.state(job).status == status
    result = read(provider, job, TEXTS)
    assert len(result.good) == rig.server.bill.texts == 3
    assert result.kinds == {(kind, code): 7}
    assert (result.anomalies, result.missing) == ({}, [])


def test_a_cancelled_job_keeps_what_it_produced(rig, read):
    rig = rig()
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    assert provider.state(job).status == "running"
    provider.cancel(job)
    assert provider.state(job).status == "cancelled"
    result = read(provider, job, TEXTS)
    assert (len(result.good), len(result.failed)) == (5, 5)


def test_cancelling_a_finished_job_is_no_error(rig):
    rig = rig()
    provider = rig.provider()
    provider.cancel(rig.finished(provider, TEXTS))


@pytest.mark.parametrize("deed", ["no-output-id", "empty-error-id"])
def test_a_file_id_that_is_null_or_empty_is_no_file(rig, deed):
    rig = rig(Fault(at="job", do=deed))
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    state = provider.state(job)
    assert state.error_file_id is None
    assert len(list(provider.outcomes(job))) == (10 if state.output_file_id else 0)


@pytest.mark.parametrize(
    ("deed", "anomalies", "missing"),
    [
        ("miss-rows", {}, 2),
        ("double-rows", {"double": 2}, 0),
        ("null-id-rows", {"no-id": 2}, 2),
        ("unknown-row", {"unknown-id": 2}, 0),
        ("malformed-line", {}, 0),
        ("blank-line", {}, 0),
    ],
)
def test_rows_that_do_not_fit_what_was_sent_are_noticed(rig, read, deed, anomalies, missing):
    rig = rig(Fault(at="job", do=deed, count=2))
    provider = rig.provider()
    result = read(provider, rig.finished(provider, TEXTS), TEXTS)
    assert result.anomalies == anomalies
    assert len(result.missing) == missing


def test_a_text_without_a_vector_within_a_request_is_missing_and_shifts_nothing(rig, read):
    rig = rig(Fault(at="job", do="short-rows", count=2))
    provider = rig.provider()
    result = read(provider, rig.finished(provider, GROUPS), GROUPS)
    assert (result.anomalies, result.failed) == ({}, {})
    assert len(result.missing) == 2
    assert len(result.good) == 18


@pytest.mark.parametrize(
    ("deed", "code"),
    [("nan-rows", "not-finite"), ("null-rows", "not-finite"), ("narrow-rows", "dimension")],
)
def test_an_unusable_vector_fails_alone(rig, read, deed, code):
    rig = rig(Fault(at="job", do=deed, count=2))
    provider = rig.provider()
    result = read(provider, rig.finished(provider, GROUPS), GROUPS)
    assert result.kinds == {("permanent", code): 2}
    assert (result.anomalies, result.missing, len(result.good)) == ({}, [], 18)


def test_a_row_that_is_both_a_success_and_an_error_is_neither_kept_nor_lost(rig, read):
    rig = rig(Fault(at="job", do="contradict-rows", count=2))
    provider = rig.provider()
    result = read(provider, rig.finished(provider, TEXTS), TEXTS)
    assert result.kinds == {("retryable", "contradictory"): 2}
    assert result.missing == []


def test_a_text_that_the_model_refuses_fails_its_request_as_a_whole(rig, read):
    rig = rig(refused_words=("poison",))
    provider = rig.provider()
    texts = GROUPS | {"bad": ["fine", "poison", "fine too"]}
    result = read(provider, rig.finished(provider, texts), texts)
    assert result.failed == {("bad", None): ("permanent", "invalid_request_error")}
    assert (result.anomalies, result.missing) == ({}, [])


def test_an_unknown_status_is_not_the_end_and_has_no_results(rig):
    rig = rig(Fault(at="job", do="stay", value="paused", count=5))
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    states = [provider.state(job) for _ in range(3)]
    assert {(state.status, state.raw_status) for state in states} == {("unknown", "paused")}
    with pytest.raises(RefusedError, match="paused") as refused:
        provider.outcomes(job)
    assert refused.value.code == "not-finished"
    assert [provider.state(job).status for _ in range(5)][-1] == "succeeded"


def test_a_job_may_be_finalizing_for_ever(rig):
    rig = rig(Fault(at="job", do="stay", count=0))
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    assert [provider.state(job).status for _ in range(9)][-5:] == ["finalizing"] * 5


def test_a_full_queue_is_told_apart_from_other_failures(rig):
    rig = rig(enqueued_tokens=60)
    provider = rig.provider()
    first = rig.submit(provider, TEXTS, "first")
    assert provider.state(first).status == "running"
    second = rig.finished(provider, TEXTS, "second")
    assert provider.state(second).queue_full
    assert rig.server.bill.texts == 0
    while not provider.state(first).terminal:
        pass
    third = rig.finished(provider, TEXTS, "third")
    assert provider.state(third).status == "succeeded"


def line(custom_id="a", *, url="/v1/embeddings", model="text-embedding-3-small", text="x"):
    body = {"model": model, "input": [text]}
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        ([line(), b"{"], "invalid_json_line", 2),
        ([line(), line()], "duplicate_custom_id", 2),
        ([line(url="/v1/chat/completions")], "invalid_url", 1),
        ([line(), line("b", model="text-embedding-3-large")], "mismatched_model", 2),
        ([line(model="no-such-model")], "model_not_found", 1),
        ([line("")], "missing_required_parameter", 1),
        ([], "empty_file", None),
        ([line(f"c{number}") for number in range(50_001)], "file-too-large", None),
    ],
    ids=["json", "double-id", "url", "models", "no-model", "no-id", "empty", "too-many"],
)
def test_a_file_with_a_bad_line_fails_as_a_whole_after_its_creation(rig, lines, code, number):
    rig = rig()
    path = rig.folder / "bad.jsonl"
    path.write_bytes(b"\n".join(lines))
    file = RequestFile(path, "bad", "f" * 32, len(lines), len(lines), path.stat().st_size, 0)
    provider = rig.provider()
    job = provider.submit(file, job_key="bad", fingerprint=file.fingerprint)
    state = provider.state(job)
    assert state.status == "failed"
    assert [(error.code, error.line) for error in state.errors] == [(code, number)]
    assert not state.queue_full
    assert list(provider.outcomes(job)) == []


def test_a_job_is_found_by_key_and_fingerprint(rig, long_ago):
    rig = rig()
    provider = rig.provider()
    jobs = {key: rig.submit(provider, TEXTS, key) for key in ("one", "two")}
    prints = {job.job_key: job.fingerprint for job in provider.list_jobs(long_ago)}
    assert list(prints) == ["two", "one"]
    assert provider.find(job_key="one", fingerprint=prints["one"], since=long_ago) == jobs["one"]
    assert provider.find(job_key="one", fingerprint="other", since=long_ago) is None
    assert provider.find(job_key="three", fingerprint=prints["one"], since=long_ago) is None


def test_a_job_that_did_not_fail_is_found_before_an_older_one_that_did(rig, long_ago):
    rig = rig(Fault(at="job", do="fail", value="token_limit_exceeded"))
    provider = rig.provider()
    failed = rig.finished(provider, TEXTS)
    print_of = next(iter(provider.list_jobs(long_ago))).fingerprint
    look = {"job_key": "job-1", "fingerprint": print_of, "since": long_ago}
    assert provider.find(**look) == failed
    second, _third = rig.submit(provider, TEXTS), rig.submit(provider, TEXTS)
    assert provider.find(**look) == second


def test_a_job_is_found_behind_hundreds_of_others(rig, long_ago):
    rig = rig()
    provider = rig.provider()
    first = rig.submit(provider, TEXTS, "first")
    for number in range(230):
        rig.server.jobs.create(
            {
                "endpoint": "/v1/embeddings",
                "completion_window": "24h",
                "input_file_id": f"file-{number}",
            }
        )
    jobs = list(provider.list_jobs(long_ago))
    assert len(jobs) == len({job.handle.job_id for job in jobs}) == 231
    assert {(job.job_key, job.fingerprint) for job in jobs[:230]} == {("", "")}
    found = provider.find(job_key="first", fingerprint=jobs[-1].fingerprint, since=long_ago)
    assert found == first


def test_jobs_older_than_the_intent_are_not_looked_at_but_for_five_minutes(rig):
    moments = iter([*[1_800_000_000.0] * 2, *[1_800_001_000.0] * 50])
    rig = rig(now=lambda: next(moments))
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    print_of = rig.requests(TEXTS).fingerprint
    created = job.created_at
    assert created.tzinfo is not None
    look = {"job_key": "job-1", "fingerprint": print_of}
    assert provider.find(**look, since=created + timedelta(minutes=4)) == job
    assert provider.find(**look, since=created + timedelta(minutes=6)) is None
    assert list(provider.list_jobs(datetime.now(UTC) + timedelta(days=3650))) == []


def test_vectors_are_views_of_float32_arrays_of_the_right_size(rig):
    rig = rig()
    provider = rig.provider()
    for outcome in provider.outcomes(rig.finished(provider, GROUPS)):
        assert outcome.vector.dtype == np.float32
        assert outcome.vector.shape == (16,)
        assert outcome.vector.base is not None
