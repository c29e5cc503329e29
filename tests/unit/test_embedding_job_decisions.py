"""What to do next about an embedding job."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.batch_provider import JobHandle, JobState, RowFailure
from embedmill.embedding_job import (
    Buckets,
    JobPolicy,
    JobProgress,
    after_not_found,
    after_pause,
    after_poll,
    after_refused_for_now,
    after_submit,
    after_unknown,
    buckets_of,
    next_step,
    verdict_on_row,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = JobPolicy(listing_lag=60, grace=3_600, poll_first=15, poll_most=600, row_tries=3)
DAY = 86_400
FRESH = JobProgress("k", NOON, sure=True)
LEFT = JobProgress("k", NOON, sure=False, last_try=NOON)
HANDLE = JobHandle("fake", "job-1", "file-1", NOON)
FLYING = JobProgress("k", NOON, sure=False, handle=HANDLE)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def step(job, seconds=0.0, window=DAY):
    return next_step(job, at(seconds), window, POLICY)


def test_a_job_whose_intent_was_just_written_is_submitted():
    assert step(FRESH) == "submit"


def test_a_job_that_another_process_left_is_looked_for_first():
    assert step(LEFT) == "look"
    assert step(LEFT, 1_000) == "look"


def test_a_job_that_may_exist_is_submitted_only_after_a_look_that_can_be_believed():
    job = after_unknown(FRESH, NOON)
    seen = []
    for _ in range(20):
        now = max(NOON, job.not_before or NOON)
        todo = next_step(job, now, DAY, POLICY)
        if todo == "submit":
            break
        assert todo == "look"
        seen.append((now - NOON).total_seconds())
        job = after_not_found(job, now, POLICY)
    assert seen == [0, 15, 30, 45, 60]


@given(st.lists(st.floats(0, 500), min_size=1, max_size=20))
def test_whenever_one_looks_a_doubtful_job_is_submitted_only_once_the_last_look_was_late(gaps):
    job, now = after_unknown(FRESH, NOON), NOON
    for gap in gaps:
        now += timedelta(seconds=gap)
        todo = next_step(job, now, DAY, POLICY)
        if todo == "submit":
            assert job.looked is not None
            assert job.looked - NOON >= timedelta(seconds=60)
            return
        if todo == "look":
            job = after_not_found(job, now, POLICY)


def test_another_lost_reply_begins_the_doubt_anew():
    job = after_not_found(after_unknown(FRESH, NOON), at(70), POLICY)
    assert step(job, 70) == "submit"
    job = after_unknown(job, at(75))
    assert step(job, 75) == "look"
    job = after_not_found(job, at(80), POLICY)
    assert step(job, 100) == "look"


def test_a_job_that_was_refused_for_now_waits_and_is_submitted_without_a_look():
    job = after_refused_for_now(after_unknown(FRESH, NOON), at(10), 121, POLICY)
    assert step(job, 130) == "wait"
    assert step(job, 131) == "submit"


def test_the_pause_grows_before_a_file_is_sent_in_vain_again():
    job, pauses = FRESH, []
    for _ in range(12):
        job = after_refused_for_now(job, NOON, None, POLICY)
        pauses.append((job.not_before - NOON).total_seconds())
    assert pauses[:3] == [15, 22.5, 33.75]
    assert pauses[-1] == POLICY.poll_most


def test_a_look_that_failed_is_repeated_and_says_nothing():
    job = after_pause(after_unknown(FRESH, NOON), at(0), 15)
    assert step(job, 14) == "wait"
    assert step(job, 70) == "look"


def test_a_submitted_job_is_asked_about_after_a_while():
    job = after_submit(FRESH, HANDLE, NOON, POLICY)
    assert step(job, 14) == "wait"
    assert step(job, 15) == "poll"


@pytest.mark.parametrize("status", ["succeeded", "expired", "cancelled", "failed"])
def test_a_job_at_its_end_is_collected_at_once(status):
    job = after_poll(FLYING, JobState(status, status), NOON, POLICY, random.Random(1))
    assert step(job) == "collect"


@pytest.mark.parametrize("status", ["pending", "running", "finalizing", "unknown"])
def test_any_other_status_is_asked_about_again(status):
    job = after_poll(FLYING, JobState(status, status), NOON, POLICY, random.Random(1))
    assert step(job, 5) == "wait"
    assert step(job, 1_000) == "poll"


def test_a_job_is_overdue_once_it_was_seen_running_after_its_window():
    running = replace(FLYING, state=JobState("running", "in_progress"))
    assert step(running, DAY + 3_600) == "poll"
    assert step(running, DAY + 3_601) == "overdue"
    # A provider that states no window has two days.
    assert step(running, 2 * DAY + 3_600, window=None) == "poll"
    assert step(running, 2 * DAY + 3_601, window=None) == "overdue"


def test_a_job_that_nobody_asked_about_for_days_is_not_overdue_but_asked_about():
    assert step(FLYING, 9 * DAY) == "poll"
    assert step(replace(FLYING, polls=4), 9 * DAY) == "poll"
    assert step(replace(FLYING, polls=5), 9 * DAY) == "overdue"


def test_a_question_without_an_answer_changes_nothing_that_is_known():
    running = JobState("running", "in_progress")
    job = after_poll(replace(FLYING, state=running), None, NOON, POLICY, random.Random(1))
    assert job.state == running
    assert job.polls == 1


@given(st.integers(0, 10_000), st.integers(0, 2**32))
def test_gaps_between_questions_grow_to_a_bound_and_vary(polls, seed):
    job = after_poll(replace(FLYING, polls=polls), None, NOON, POLICY, random.Random(seed))
    gap = (job.not_before - NOON).total_seconds()
    assert 15 * 0.8 <= gap <= 600 * 1.2


SERVER = RowFailure("retryable", "server_error", "")
REFUSED = RowFailure("permanent", "invalid_request", "")
EXPIRED = RowFailure("expired", "batch_expired", "")


@pytest.mark.parametrize(
    ("failure", "tries", "shared", "verdict"),
    [
        (SERVER, 1, False, "again"),
        (SERVER, 2, True, "again"),
        (SERVER, 3, False, "dead"),
        (EXPIRED, 2, False, "again"),
        (EXPIRED, 3, True, "dead"),
        (REFUSED, 1, False, "dead"),
        (REFUSED, 1, True, "again-alone"),
        (REFUSED, 9, True, "again-alone"),
    ],
)
def test_a_row_without_a_vector_is_sent_again_alone_or_dies(failure, tries, shared, verdict):
    found = verdict_on_row(failure, tries, shared_request=shared, policy=POLICY)
    assert found == verdict


def test_buckets_add_up():
    buckets = buckets_of({"succeeded": 3, "missing": 2, "expired": 1})
    assert buckets == Buckets(succeeded=3, missing=2, expired=1)
    assert buckets.total == 6
