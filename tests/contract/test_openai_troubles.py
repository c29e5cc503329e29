"""The real SDK against a server in trouble: which error, how many requests, what can be found."""

import threading
import time
from email.utils import formatdate

import pytest

from embedmill.batch_provider import QUEUE_FULL
from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    RateLimitedError,
    StopRunError,
    TransientError,
)
from embedmill.testing.openai_server import Fault

TEXTS = {f"c{number}": f"text number {number}" for number in range(40)}


def look(rig):
    return {"job_key": "job-1", "fingerprint": rig.requests(TEXTS).fingerprint}


@pytest.mark.parametrize(
    ("deed", "more", "exists"),
    [
        ("drop-reply", {}, True),
        ("drop", {}, False),
        ("error", {}, False),
        ("error", {"value": "503"}, False),
        ("html-502", {}, False),
        ("html-200", {}, False),
    ],
)
def test_a_creation_without_a_clear_reply_is_unknown_and_never_repeated(
    rig, long_ago, deed, more, exists
):
    rig = rig(Fault(at="batches.create", do=deed, **more))
    provider = rig.provider(read_retries=2)
    with pytest.raises(OutcomeUnknownError) as unknown:
        rig.submit(provider, TEXTS)
    assert unknown.value.code == "create-unknown"
    found = rig.provider().find(**look(rig), since=long_ago)
    assert (found is not None) == exists
    assert rig.server.posts("/batches") == 1


def test_a_job_that_a_slow_server_creates_after_we_have_given_up_is_found(rig, long_ago):
    rig, given_up = rig(), threading.Event()
    answer = rig.server.reply_to

    def slow(request):
        if (request.method, request.path) == ("POST", "/v1/batches"):
            assert given_up.wait(60)
        return answer(request)

    rig.server.reply_to = slow
    with pytest.raises(OutcomeUnknownError):
        rig.submit(rig.provider(timeout_s=1.0, read_retries=2), TEXTS)
    given_up.set()
    while not rig.server.jobs.list({})["data"]:
        time.sleep(0.01)
    assert rig.provider().find(**look(rig), since=long_ago) is not None
    assert rig.server.posts("/batches") == 1


def test_a_creation_that_never_reached_the_server_is_not_unknown(rig):
    rig = rig()
    provider = rig.provider()
    file = rig.requests(TEXTS)
    rig.server.pause()
    with pytest.raises(TransientError) as error:
        provider._create("file-1", {})
    assert error.value.code == "not-sent"
    with pytest.raises(TransientError):
        provider.submit(file, job_key="job-1", fingerprint=file.fingerprint)


@pytest.mark.parametrize(
    ("header", "value", "wait"),
    [
        ("retry-after", "", None),
        ("retry-after", "0", 0.0),
        ("retry-after", "1", 1.0),
        ("retry-after", "1.5", 1.5),
        ("retry-after", "121", 121.0),
        ("retry-after", "-3", 0.0),
        ("retry-after", "soon", None),
        ("retry-after", "inf", None),
        ("retry-after-ms", "250", 0.25),
        ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_a_rate_limit_says_how_long_to_wait(rig, header, value, wait):
    rig = rig(Fault(at="batches.create", do="rate-limit", header=header, value=value))
    with pytest.raises(RateLimitedError) as limited:
        rig.submit(rig.provider(), TEXTS)
    assert limited.value.retry_after == wait
    assert rig.server.posts("/batches") == 1


def test_a_wait_may_be_given_as_a_date(rig):
    date = formatdate(4_000_000_000, usegmt=True)
    rig = rig(Fault(at="batches.get", do="rate-limit", value=date))
    provider = rig.provider()
    provider._now = lambda: 4_000_000_000.0 - 90
    job = rig.submit(provider, TEXTS)
    with pytest.raises(RateLimitedError) as limited:
        provider.state(job)
    assert limited.value.retry_after == 90


@pytest.mark.parametrize("route", ["files.create", "batches.create", "batches.get"])
@pytest.mark.parametrize(
    ("deed", "code"), [("no-money", "insufficient-quota"), ("bad-key", "credentials")]
)
def test_no_money_and_a_wrong_key_stop_the_run(rig, route, deed, code):
    rig = rig(Fault(at=route, do=deed))
    provider = rig.provider()
    with pytest.raises(StopRunError) as stopped:
        provider.state(rig.submit(provider, TEXTS))
    assert stopped.value.code == code
    assert stopped.value.hint


def test_a_full_queue_at_creation_means_that_nothing_was_created(rig):
    rig = rig(Fault(at="batches.create", do="token-limit"))
    with pytest.raises(TransientError) as error:
        rig.submit(rig.provider(), TEXTS)
    assert error.value.code == QUEUE_FULL
    assert not isinstance(error.value, OutcomeUnknownError)


def test_too_many_creations_within_an_hour_are_a_rate_limit(rig):
    rig = rig(creations_per_hour=1)
    provider = rig.provider()
    rig.submit(provider, TEXTS)
    with pytest.raises(RateLimitedError):
        rig.submit(provider, TEXTS)


@pytest.mark.parametrize("deed", ["error", "html-502", "html-200", "drop"])
def test_a_question_without_an_answer_says_nothing_about_the_job(rig, deed):
    rig = rig(Fault(at="batches.get", do=deed))
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    with pytest.raises(TransientError) as error:
        provider.state(job)
    assert "<" not in str(error.value)
    assert provider.state(job).status in {"pending", "running"}


def test_questions_are_repeated_by_themselves(rig):
    rig = rig(Fault(at="batches.get", do="error"), Fault(at="batches.list", do="html-502"))
    provider = rig.provider(read_retries=2)
    job = rig.submit(provider, TEXTS)
    assert provider.state(job).status == "running"


def test_a_job_that_is_unknown_to_the_provider_is_refused(rig):
    rig = rig(Fault(at="batches.get", do="not-found"))
    provider = rig.provider()
    job = rig.submit(provider, TEXTS)
    with pytest.raises(EmbedmillError) as error:
        provider.state(job)
    assert error.value.code == "not-found"


@pytest.mark.parametrize("deed", ["drop-reply", "html-502", "error"])
def test_an_upload_without_a_reply_creates_no_job(rig, deed):
    rig = rig(Fault(at="files.create", do=deed))
    with pytest.raises(TransientError) as error:
        rig.submit(rig.provider(), TEXTS)
    assert error.value.code == "upload-lost"
    assert (rig.server.posts("/files"), rig.server.posts("/batches")) == (1, 0)


def test_a_lost_upload_is_found_by_its_name_and_not_sent_again(rig, read, long_ago):
    rig = rig(Fault(at="files.create", do="drop-reply"))
    provider = rig.provider()
    with pytest.raises(TransientError):
        rig.submit(provider, TEXTS)
    job = rig.submit(provider, TEXTS, uploaded_since=long_ago)
    assert rig.server.posts("/files") == 1
    while not provider.state(job).terminal:
        pass
    assert len(read(provider, job, TEXTS).good) == 40


def test_an_upload_that_did_not_arrive_is_sent_again(rig, long_ago):
    rig = rig(Fault(at="files.create", do="drop"))
    provider = rig.provider()
    with pytest.raises(TransientError):
        rig.submit(provider, TEXTS)
    rig.submit(provider, TEXTS, uploaded_since=long_ago)
    assert rig.server.posts("/files") == 2


def test_a_file_that_is_not_visible_yet_is_waited_for(rig):
    rig = rig(Fault(at="files.get", do="not-found", times=3))
    rig.submit(rig.provider(), TEXTS)
    assert rig.slept == [2.0, 2.0, 2.0]


def test_no_job_is_created_on_a_file_that_never_shows(rig):
    rig = rig(Fault(at="files.get", do="not-found", times=0))
    with pytest.raises(TransientError) as error:
        rig.submit(rig.provider(), TEXTS)
    assert error.value.code == "file-not-visible"
    assert rig.server.posts("/batches") == 0


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no-ranges"])
@pytest.mark.parametrize("deed", ["cut", "cut-at-line", "short"])
def test_a_download_that_breaks_off_is_taken_up_where_it_stopped(rig, read, deed, ranges):
    rig = rig(
        Fault(at="files.content", do=deed, count=2000),
        Fault(at="files.content", do=deed, count=4000, call=2),
        ranges=ranges,
    )
    provider = rig.provider()
    result = read(provider, rig.finished(provider, TEXTS), TEXTS)
    assert (len(result.good), result.anomalies, result.missing) == (40, {}, [])
    assert sum(path.endswith("/content") for _, path in rig.server.requests) == 3


@pytest.mark.parametrize("deed", ["cut", "short"])
def test_a_file_that_is_never_whole_is_an_error_and_no_end_of_results(rig, deed):
    rig = rig(Fault(at="files.content", do=deed, count=2000, times=0), ranges=False)
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    had = []
    with pytest.raises(TransientError) as error:
        had.extend(provider.outcomes(job))
    assert error.value.code == "truncated-results"
    assert rig.slept == [1.0, 2.0, 4.0]


def test_results_that_the_provider_threw_away_are_told_apart(rig):
    rig = rig(Fault(at="files.content", do="not-found"))
    provider = rig.provider()
    job = rig.finished(provider, TEXTS)
    with pytest.raises(EmbedmillError) as error:
        list(provider.outcomes(job))
    assert error.value.code == "results-gone"


def test_no_key_is_repeated_in_an_error(rig, long_ago):
    rig = rig(Fault(at="batches.list", do="bad-key"))
    provider = rig.provider()
    with pytest.raises(StopRunError) as stopped:
        list(provider.list_jobs(long_ago))
    assert "sk-of-the-fake-server" not in str(stopped.value)
