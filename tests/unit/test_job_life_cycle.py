"""Embedding jobs from offer to vectors: whatever goes wrong, a row ends once and is paid once."""

import sys
from datetime import timedelta

import numpy as np
import pytest
from job_scenes import SMALL, on, rehearsal, settled, small_files

from embedmill.batch_provider import BatchLimits
from embedmill.embedding_job import JobPolicy
from embedmill.errors import RefusedError, StopRunError
from embedmill.segment import SegmentKey
from embedmill.testing.crash_points import Crash, Process
from embedmill.testing.job_rehearsal import JobRehearsal
from embedmill.text_index import Loan

SOON_RIGHT = {
    "nothing": [],
    "submit: the reply is lost, the job exists": [on("submit", "reply-lost")],
    "submit: the reply is lost, there is no job": [on("submit", "unknown")],
    "submit: every reply is lost for a while": [on("submit", "reply-lost", times=2)],
    "submit: replies are lost of jobs that do not exist": [on("submit", "unknown", times=3)],
    "submit: lost, then found only at the third look": [
        on("submit", "reply-lost"),
        on("find", "fail", times=2),
    ],
    "submit: rate limit with a wait": [on("submit", "rate-limit", wait=121.0, times=3)],
    "submit: rate limit without a wait": [on("submit", "rate-limit", times=3)],
    "submit: unknown, then a rate limit": [
        on("submit", "unknown"),
        on("submit", "rate-limit", call=2),
    ],
    "submit: the queue is full": [on("submit", "queue-full", times=4)],
    "submit: the upload is lost": [on("submit", "upload-lost", times=2)],
    "submit: a server error": [on("submit", "fail", times=3)],
    "state: five failures": [on("state", "fail", times=5)],
    "state: unknown statuses": [on("state", "odd-status", times=6)],
    "job: the queue is full after all": [on("job", "fail-queue-full", times=2)],
    "results: truncated once": [on("outcomes", "truncate", count=3)],
    "results: truncated four times": [on("outcomes", "truncate", count=5, times=4)],
    "results: shuffled": [on("job", "shuffle", times=0)],
    "expired with half of it done": [on("job", "expire", count=5)],
    "expired with nothing done": [on("job", "expire", count=0, times=2)],
    "cancelled with half of it done": [on("job", "cancel-by-provider", count=5)],
    "rows that failed for no fault of theirs": [on("job", "fail-rows", count=3, times=2)],
}


@pytest.mark.parametrize("name", SOON_RIGHT)
def test_a_passing_trouble_costs_nothing_but_time(name):
    made = rehearsal(*SOON_RIGHT[name], listed_after_s=50)
    made.run()
    settled(made)


@pytest.mark.parametrize("name", SOON_RIGHT)
def test_a_passing_trouble_costs_nothing_when_requests_hold_several_texts(name):
    made = rehearsal(*SOON_RIGHT[name], listed_after_s=50)
    made.inputs_per_request = 3
    made.run()
    settled(made)


@pytest.mark.parametrize("name", SOON_RIGHT)
def test_a_passing_trouble_costs_nothing_when_nobody_waits_for_the_jobs(name):
    made = rehearsal(*SOON_RIGHT[name], listed_after_s=50)
    for _ in range(30):
        made.run(wait=False)
        if not made.waiting():
            break
        made.clock.sleep(400)
    settled(made)


def test_rows_that_the_results_lack_are_sent_and_paid_for_again():
    made = rehearsal(on("job", "miss", count=2))
    made.run()
    settled(made, lost=2)
    assert sum(record.outcome.buckets.missing for record in made.records()) == 2


@pytest.mark.parametrize("alone", [True, False])
def test_a_bad_text_dies_alone(alone):
    made = rehearsal(poison="w13")
    made.inputs_per_request = 1 if alone else 4
    made.run()
    settled(made, dead=1)
    assert list(made.fates().dead.values()) == ["invalid_request"]


def test_a_vector_that_is_not_finite_dies_with_its_code():
    made = rehearsal(on("job", "nan-rows", count=2))
    made.run()
    settled(made, dead=2)
    assert set(made.fates().dead.values()) == {"not-finite"}


def test_a_row_that_fails_again_and_again_dies_with_the_providers_code():
    made = rehearsal(on("job", "fail-rows", count=99, times=0), segments=1)
    made.policy = JobPolicy(row_tries=3)
    made.run()
    settled(made, dead=10)
    assert set(made.fates().dead.values()) == {"server_error"}
    assert made.provider.calls["submit"] == 3 * 2


STOPS = {
    "no such key": (on("submit", "credentials"), "credentials"),
    "no credit": (on("submit", "no-money"), "insufficient-quota"),
    "no such key for questions": (on("state", "credentials"), "credentials"),
    "no credit in the middle of a job": (
        on("job", "broke-rows", count=2),
        "insufficient-quota",
    ),
    "the job is refused as a whole": (on("job", "fail-job"), "job-refused"),
    "the submission is refused": (on("submit", "refuse"), "job-refused"),
}


@pytest.mark.parametrize("name", STOPS)
def test_what_a_person_has_to_mend_ends_the_run_and_the_next_one_goes_on(name):
    fault, code = STOPS[name]
    made = rehearsal(fault)
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == code
    made.done.clear()
    finished = set(made.texts) - set(made.waiting())
    made.run()
    assert finished.isdisjoint(key for key, _ in made.done)
    made.done += [(key, None) for key in finished]
    settled(made)


NOT_TO_BE_USED = {
    "double": (on("job", "double", count=2), 8),
    "foreign": (on("job", "foreign"), 8),
    "without ids": (on("job", "null-ids", count=2), 8),
    "a known text came back wrong": (on("job", "wrong-canary"), 8),
    "empty": (on("job", "nothing"), 8),
    "gone": (on("outcomes", "gone"), 8),
}


@pytest.mark.parametrize("name", NOT_TO_BE_USED)
def test_results_that_cannot_be_trusted_are_not_used_and_not_paid_for_again_unasked(name):
    fault, lost = NOT_TO_BE_USED[name]
    made = rehearsal(fault)
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code in {"quarantined", "results-gone"}
    assert made.paid_twice() == {}
    ended = [record for record in made.records() if record.outcome is not None]
    unused = [record for record in ended if not record.outcome.buckets.total]
    assert len(unused) == 1
    assert sum(map(len, unused[0].outcome.again.values())) == unused[0].intent.inputs
    made.run()
    assert made.fates().open == []
    assert len(made.fates().vectors) == 30
    assert len(made.paid_twice()) <= lost


def test_results_that_are_refused_and_not_gone_are_not_paid_for_again():
    made = rehearsal(segments=1)
    real = made.provider.outcomes

    def refused(job):
        made.provider.outcomes = real
        raise RefusedError("416 Range Not Satisfiable", code="http-416")

    made.provider.outcomes = refused
    with pytest.raises(StopRunError, match="cannot be read: 416") as stopped:
        made.run()
    assert "--give-up" in stopped.value.hint
    assert made.records()[0].outcome is None
    made.run()
    settled(made)


def test_a_job_that_never_ends_ends_the_run_when_nothing_else_goes_on():
    made = rehearsal(on("job", "stick"))
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == "overdue"
    assert "jobs cancel" in stopped.value.hint
    assert len(made.provider.jobs) == 5
    assert [record.outcome is None for record in made.records()].count(True) == 1


FOR_EVER = {
    "404 at the creation": (on("submit", "upload-lost", times=0), "job-not-sent"),
    "server errors at the creation": (on("submit", "fail", times=0), "job-not-sent"),
    "lost replies at the creation": (on("submit", "unknown", times=0), "job-not-sent"),
    "a listing that does not answer": (
        [on("submit", "reply-lost"), on("find", "fail", times=0)],
        "job-not-sent",
    ),
    "rate limits": (on("submit", "rate-limit", times=0), "job-not-sent"),
    "rate limits that ask for no pause": (
        on("submit", "rate-limit", wait=0.0, times=0),
        "job-not-sent",
    ),
    "a full queue": (on("submit", "queue-full", times=0), "job-not-sent"),
    "a full queue after all": (on("job", "fail-queue-full", times=0), "queue-full"),
    "results that are cut off": (on("outcomes", "truncate", count=3, times=0), "results-refused"),
}


@pytest.mark.parametrize("name", FOR_EVER)
def test_what_fails_for_ever_ends_the_run_and_the_next_one_goes_on(name):
    faults, code = FOR_EVER[name]
    made = rehearsal(*(faults if isinstance(faults, list) else [faults]), segments=1)
    began = made.clock.now
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == code
    assert stopped.value.hint
    # Longer than an outage, and not much longer than a job takes.
    assert timedelta(hours=4) <= made.clock.now - began <= timedelta(hours=27)
    assert made.provider.calls["submit"] < 500
    made.provider.mend()
    made.run()
    settled(made)


def test_an_outage_of_some_hours_ends_no_run():
    made = rehearsal(on("submit", "fail", times=26))
    began = made.clock.now
    made.run()
    assert made.clock.now - began > timedelta(hours=3)
    settled(made)


def test_a_job_that_cannot_be_sent_holds_up_no_result_of_others():
    made = rehearsal(on("submit", "fail", call=3, times=0), takes_s=20 * 3600)
    with pytest.raises(StopRunError, match=r"could not be sent, \d+ tries in \d+ hours") as stopped:
        made.run()
    assert "jobs cancel" in stopped.value.hint
    outcomes = [record.outcome for record in made.records()]
    assert outcomes.count(None) == 1
    assert sum(outcome is not None and outcome.buckets.succeeded == 6 for outcome in outcomes) == 2


def test_a_job_that_never_ended_is_collected_once_it_was_cancelled_by_hand():
    made = rehearsal(on("job", "stick"))
    with pytest.raises(StopRunError):
        made.run()
    # The provider takes its time to end it, and the command is run again at once.
    made.provider.cancel(made.provider.jobs[0].handle)
    made.run()
    assert made.fates().open == []
    assert made.paid_twice() == {}
    assert "cancelled" in [record.outcome.status for record in made.records()]


def test_a_job_that_ended_days_ago_is_collected_whoever_was_away():
    made = rehearsal()
    made.run(wait=False)
    made.clock.sleep(5 * 86_400)
    made.run()
    settled(made)


def test_one_stuck_job_holds_up_no_other():
    made = rehearsal(on("job", "stick"))
    made.run(wait=False)
    made.clock.sleep(2 * 86_400)
    with pytest.raises(StopRunError):
        made.run()
    assert [record.outcome is None for record in made.records()].count(True) == 1


def test_a_lost_job_is_not_repeated_before_the_listing_can_be_believed():
    made = rehearsal(on("submit", "reply-lost"), listed_after_s=59)
    made.run()
    settled(made)
    assert len(made.provider.jobs) == made.provider.calls["submit"] == 5


def test_a_submission_that_took_long_is_doubted_from_its_end_on():
    made = rehearsal(segments=1)
    real = made.provider.submit

    def slow(*arguments, **more):
        made.clock.sleep(300)
        real(*arguments, **more)
        made.provider.submit = real
        raise_unknown()

    def raise_unknown():
        from embedmill.errors import OutcomeUnknownError

        raise OutcomeUnknownError("no reply")

    made.provider.submit = slow
    made.provider._listed_after = timedelta(seconds=59)
    made.run()
    settled(made)


def test_a_run_that_does_not_wait_ends_only_when_the_provider_has_all_jobs():
    made = rehearsal(on("submit", "unknown"), on("submit", "rate-limit", call=3, wait=20.0))
    made.run(wait=False)
    assert all(record.handle is not None for record in made.records())
    assert sum(record.intent.inputs for record in made.records()) == 28


def test_a_run_that_does_not_wait_leaves_a_full_queue_to_the_next():
    made = rehearsal(on("submit", "queue-full", call=2))
    begun = made.clock.now
    made.run(wait=False)
    assert made.clock.now - begun < timedelta(seconds=60)
    assert sorted(record.handle is None for record in made.records()) == [False, True]
    made.clock.sleep(3_000)
    made.run()
    settled(made)


def test_only_one_file_lies_on_the_disk_while_the_queue_is_full():
    made = rehearsal(on("submit", "queue-full", times=0))
    with pytest.raises(AssertionError, match="no end"):
        made.run(limit=20)
    assert len(made.records()) == 1


def test_no_more_tokens_wait_at_the_provider_than_it_takes():
    limits = BatchLimits(enqueued_tokens=150, window_s=86_400)
    made = rehearsal(limits=limits)
    made.run()
    settled(made)
    assert len(made.provider.jobs) >= 3


def test_a_text_that_no_job_can_take_dies_and_holds_nothing_up():
    limits = BatchLimits(enqueued_tokens=150, tokens_per_input=1_000, window_s=86_400)
    made = JobRehearsal(limits=limits)
    made.add(0, 0, ["fine", "long #200", "very long #2000"])
    made.add(1, 0, ["also long #200"])
    made.run()
    fates = made.fates()
    assert fates.open == []
    assert sorted(fates.vectors.values()) == ["fine"]
    assert set(fates.dead.values()) == {"too-large"}


def test_a_text_that_is_larger_than_a_file_dies_and_holds_nothing_up():
    made = JobRehearsal(limits=BatchLimits(bytes_per_file=600, window_s=86_400))
    made.add(0, 0, ["word " * 200, "fine"])
    made.add(1, 0, ["word " * 300])
    made.run()
    assert made.fates().open == []
    assert list(made.fates().vectors.values()) == ["fine"]
    assert set(made.fates().dead.values()) == {"too-large"}


def test_texts_that_only_together_are_too_large_are_sent_one_by_one():
    made = JobRehearsal(limits=BatchLimits(bytes_per_file=900, window_s=86_400))
    made.inputs_per_request = 4
    made.add(0, 0, [f"{letter} " * 150 for letter in "abcdef"])
    made.run()
    settled(made)


# Borrowing.


def test_borrowers_wait_for_lenders_and_are_paid_for_once():
    made = JobRehearsal(limits=SMALL)
    lender = made.add(0, 0, ["one", "two"])
    made.add(1, 0, ["three", "one"], loans=[Loan(1, lender, 0)])
    made.add(2, 0, ["two", "one"], loans=[Loan(0, lender, 1), Loan(1, lender, 0)])
    made.run()
    settled(made)
    assert len(made.provider.jobs) == 1


def test_equal_texts_are_paid_for_once_although_another_process_lent_them():
    made = JobRehearsal(limits=SMALL)
    made.add(1, 0, ["one", "two"])
    made.run(wait=False)
    made.add(0, 0, ["two", "three", "one"])
    made.run()
    settled(made)


def test_a_changed_document_waits_for_the_unchanged_chunks_that_fly():
    made = JobRehearsal(limits=SMALL)
    made.add(0, 0, ["one", "two"])
    made.run(wait=False)
    made.add(0, 1, ["two", "new"], same_as=[(0, 1), (-1, -1)])
    made.run()
    settled(made)


def test_two_segments_that_borrow_from_each_other_both_end():
    made = JobRehearsal(limits=BatchLimits(inputs_per_file=4, window_s=86_400))
    made.add(1, 0, ["b1", "b2"])
    made.run(wait=False)
    made.add(0, 0, ["b2", "a1", "a2", "a3"])
    made.add(1, 1, ["a3", "c1", "b1"])
    made.run()
    settled(made)


def test_a_borrower_is_sent_itself_when_its_lender_dies():
    made = JobRehearsal(on("job", "reject-rows"), limits=SMALL)
    made.add(0, 0, ["one"])
    made.add(1, 0, ["one", "two"])
    made.run()
    assert list(made.fates().dead) == [(SegmentKey(0, 0), 0)]
    assert sorted(made.fates().vectors.values()) == ["one", "two"]


@pytest.mark.parametrize("together", [True, False])
def test_a_text_whose_lender_died_is_sent_by_one_of_its_borrowers(together):
    made = JobRehearsal(on("job", "reject-rows"), limits=SMALL)
    lender = made.add(0, 0, ["one", "two"])
    if not together:
        made.run()
    made.add(1, 0, ["one", "three"], loans=[Loan(0, lender, 0)])
    made.add(2, 0, ["four", "one"], loans=[Loan(1, lender, 0)])
    made.run()
    settled(made, dead=1)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_heir_of_a_text_lends_it_to_later_processes_too(moment):
    for crash_at in range(1, 60):
        made = JobRehearsal(
            on("job", "reject-rows"), limits=BatchLimits(inputs_per_file=3, window_s=86_400)
        )
        lender = made.add(0, 0, ["one", "two"])
        made.add(1, 0, ["one"], loans=[Loan(0, lender, 0)])
        made.add(2, 0, ["one", *"abcde"], loans=[Loan(0, lender, 0)])
        process = Process(crash_at, moment)
        try:
            made.run(process)
        except Crash:
            # What this run had lent is known to nobody but its records.
            made.loans = {key: [] for key in made.loans}
            made.run()
        else:
            break
        assert made.fates().open == []
        assert list(made.fates().dead) == [(lender, 0)]
        assert made.paid_twice() == {}
    assert not process.crashed
    assert crash_at > 20


def test_a_text_that_died_in_two_segments_is_not_sent_for_each_of_the_others():
    made = JobRehearsal(limits=SMALL, poison="bad")
    lender = made.add(0, 0, ["bad"])
    for shard in range(1, 6):
        made.add(shard, 0, ["bad", f"good {shard}"], loans=[Loan(0, lender, 0)])
    made.run()
    settled(made, dead=6)
    assert [len(job.requests) for job in made.provider.jobs] == [2 + 6, 2 + 1]


def test_two_segments_split_over_two_files_are_completed_from_both():
    made = JobRehearsal(limits=BatchLimits(inputs_per_file=5, window_s=86_400))
    made.add(0, 0, ["a", "b", "c", "d"])
    made.add(0, 1, ["e", "f"])
    made.run()
    settled(made)
    assert [len(job.requests) for job in made.provider.jobs] == [5, 5]
    assert not [path for path in made.workspace.files if "/rows/" in path]


# The realtime endpoint beside jobs.


def auto(*faults, below=4, **more):
    made = rehearsal(*faults, **more)
    made.auto = True
    made.options["realtime_below"] = below
    return made


def test_a_small_remainder_goes_through_the_realtime_endpoint():
    made = auto(below=5)
    made.run()
    settled(made)
    assert sum(made.provider.bill.direct.values()) == 4
    assert len(made.provider.jobs) == 4


def test_rows_that_a_job_leaves_over_go_through_the_realtime_endpoint():
    made = auto(on("job", "fail-rows", count=2), below=5)
    made.run()
    settled(made)
    assert len(made.provider.jobs) == 4


def test_a_bad_text_dies_at_the_realtime_endpoint_too():
    made = auto(below=100, poison="w13")
    made.run()
    settled(made, dead=1)
    assert made.provider.jobs == []


def test_a_text_is_borrowed_although_its_neighbour_had_to_be_sent():
    made = small_files(3, segments=0, poison="bad")
    made.auto, made.options["realtime_below"] = True, 3
    lender = made.add(0, 0, ["in a job", "good", "bad"])
    borrower = made.add(1, 0, ["good", "bad"])
    made.loans[borrower] = [Loan(0, lender, 1), Loan(1, lender, 2)]
    made.run()
    settled(made, dead=2)


def test_a_run_that_died_between_realtime_calls_goes_on_behind_a_bad_text():
    made = JobRehearsal(limits=SMALL, poison="bad")
    made.auto = True
    made.options["realtime_below"] = sys.maxsize
    made.add(0, 0, ["bad", *(f"text {number}" for number in range(4_100))])
    with pytest.raises(Crash):
        made.run(Process(crash_at=3))
    made.run()
    settled(made, dead=1)


def test_a_segment_that_another_process_completes_meanwhile_is_not_embedded_for_ever():
    made = auto(below=100, segments=1)
    real, calls = made.provider.embed, []

    def overtaken(texts, role):
        calls.append(len(texts))
        assert len(calls) < 4
        if len(calls) == 1:
            made.run()
        return real(texts, role)

    made.provider.embed = overtaken
    made.run()
    assert made.fates().open == []
    # By either process once.
    assert calls == [10, 10]


def test_slow_calls_are_spread_over_several_advances():
    made = auto(below=100)
    real = made.provider.embed

    def slow(texts, role):
        made.clock.sleep(61)
        return real(texts, role)

    made.provider.embed = slow
    advances = made.run()
    settled(made)
    assert [len(advance.done) for advance in advances] == [1, 1, 1]
    assert not any(advance.resting for advance in advances[:2])


@pytest.mark.parametrize("hours", [0.0, 0.1, 1.0])
def test_at_the_deadline_jobs_are_cancelled_and_what_they_did_is_kept(hours):
    made = auto(on("job", "stick", times=0), below=0)
    made.options["deadline"] = made.clock.now + timedelta(hours=hours)
    made.policy = JobPolicy(row_tries=1)
    made.run()
    settled(made)
    assert (sum(made.provider.bill.jobs.values()) > 0) == (hours > 0)


def test_a_deadline_that_cannot_cancel_at_once_tries_again():
    made = auto(on("job", "stick", times=0), on("cancel", "fail", times=5), below=0)
    made.options["deadline"] = made.clock.now + timedelta(hours=1)
    made.run()
    settled(made)


def test_at_the_deadline_a_job_that_waits_for_the_queue_is_not_sent_any_more():
    made = auto(on("submit", "queue-full", times=0), below=0)
    made.options["deadline"] = made.clock.now + timedelta(hours=1)
    made.run()
    settled(made)
    assert made.provider.jobs == []


# Settings that change while jobs fly.


@pytest.mark.parametrize("canaries", [0, 1])
def test_fewer_known_texts_than_a_flying_job_has_are_enough(canaries):
    made = rehearsal()
    made.run(wait=False)
    made.canaries = made.canaries[:canaries]
    made.clock.sleep(2_000)
    made.run()
    settled(made)


def test_an_intent_whose_file_cannot_be_made_any_more_is_given_up_and_its_rows_are_sent():
    made = rehearsal(on("submit", "credentials"))
    with pytest.raises(StopRunError):
        made.run()
    made.canaries = ()
    made.run()
    settled(made)
    assert made.records()[0].outcome.status == "abandoned"


def test_vectors_are_those_of_the_chunks_row_for_row():
    made = rehearsal()
    made.run()
    for key, texts in made.texts.items():
        stored = made.vectors.read(key, made.chunks.chunks(key)[1])
        assert np.array_equal(stored.vectors, made.provider.model_of(texts))
