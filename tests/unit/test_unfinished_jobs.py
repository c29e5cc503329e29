"""Jobs that are still wanted, those that nobody needs, and what a person is told of them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from job_scenes import in_realtime, on, rehearsal, settled

from embedmill.batch_provider import BatchLimits
from embedmill.errors import RefusedError, StopRunError
from embedmill.job_cancelling import cancel_job, give_up_job
from embedmill.job_records import JobRecords
from embedmill.job_summary import open_summaries, unneeded_line, waiting_line
from embedmill.testing.crash_points import Crash, Process
from embedmill.testing.fake_batch_provider import ProviderFault
from embedmill.testing.job_rehearsal import JobRehearsal
from embedmill.unfinished_jobs import unfinished_jobs


def left_in(made, lacks=None):
    records = JobRecords(made.workspace, "jobs", made.names)
    return unfinished_jobs(records, lacks or (lambda key: not made.vectors.exists(key)))


def begun(*faults, segments=1):
    """Segments whose rows are in jobs, one file each."""
    made = JobRehearsal(*faults, canaries=0)
    for number in range(segments):
        made.add(0, number, [f"text {number} {row}" for row in range(3)])
        made.run(wait=False)
    return made


def test_an_open_job_is_named_with_its_rows_and_what_to_type():
    made = begun()
    left = left_in(made)
    (record,) = made.records()
    notice = left.notice(waits=True)
    assert notice.startswith(
        f"1 embedding job with 3 rows is still open ({record.intent.key}, submitted 2026-01-01 "
        f"00:00 UTC as {record.handle.job_id}): this run does not pay for these rows again, waits"
    )
    assert f"embedmill jobs cancel {record.intent.key} -c SETTINGS" in notice


def test_the_oldest_jobs_are_named_and_the_others_counted():
    notice = left_in(begun(segments=5)).notice(waits=False)
    assert notice.startswith("5 embedding jobs with 15 rows are still open (")
    assert "; 2 more): " in notice
    assert "leaves them to a later one" in notice
    assert "embedmill jobs cancel KEY -c SETTINGS" in notice


def test_an_intent_that_may_never_have_been_sent_is_open_as_well():
    made = JobRehearsal(ProviderFault("submit", "unknown"), canaries=0)
    made.add(0, 0, ["a"])
    with pytest.raises(AssertionError, match="no end"):
        made.run(limit=0)
    notice = left_in(made).notice(waits=True)
    assert ", of 2026-01-01 00:00 UTC, perhaps never sent): this run does" in notice
    assert "if it is not there, its rows are embedded in realtime" in notice


def test_a_job_whose_segments_have_vectors_is_nobodys_business():
    made = begun()
    assert not left_in(made, lacks=lambda key: False)


def test_rows_that_an_ended_job_brought_to_an_incomplete_segment_count():
    made = begun(ProviderFault("job", "expire", count=2))
    made.clock.sleep(100_000)
    made.run(wait=False)
    left = left_in(made)
    assert left.kept == 1
    assert left


def test_open_jobs_are_told_of_with_their_rows_and_the_oldest_ones_time():
    left = left_in(begun(segments=2))
    first = left.jobs[0].intent
    line = waiting_line(open_summaries(left.jobs, None))
    tokens = sum(job.intent.tokens for job in left.jobs)
    assert line == (
        f"2 embedding jobs at the provider since {first.created:%Y-%m-%d %H:%M} UTC: 6 rows, about "
        f"{tokens} tokens (see: embedmill jobs list -c SETTINGS)"
    )
    unsent = replace(left.jobs[1], handle=None)
    line = waiting_line(open_summaries([left.jobs[0], unsent], None))
    assert "UTC, 1 of them perhaps never sent: " in line


def test_an_open_job_that_brings_nothing_is_named_with_what_it_may_cost_and_what_to_type():
    made = begun(segments=5)
    left = left_in(made, lacks=lambda key: key.number == 0)
    assert [len(left.jobs), len(left.unneeded)] == [1, 4]
    line = unneeded_line(open_summaries(left.unneeded, 10.0))
    first = left.unneeded[0]
    assert line.startswith("4 embedding jobs are open though all rows of them have vectors: ")
    assert f"{first.intent.key} ({first.handle.job_id}), " in line
    assert ", 1 more. Nothing waits for them" in line
    assert "about 120 tokens, $0.0012: embedmill jobs cancel KEY -c SETTINGS" in line
    (only,) = open_summaries(left.unneeded[:1], None)
    assert f"an unknown price: embedmill jobs cancel {only['key']} -c" in unneeded_line([only])


@pytest.mark.parametrize("give_up", [True, False])
def test_a_job_that_brings_nothing_is_closed_by_whoever_cancels_it(give_up):
    made = begun()
    records, (record,) = JobRecords(made.workspace, "jobs", made.names), made.records()
    if give_up:
        give_up_job(record, records, needed=False, clock=made.clock)
    else:
        cancel_job(
            record, records, made.provider, needed=False, clock=made.clock, sleep=made.clock.sleep
        )
    (record,) = made.records()
    assert (record.outcome.status, record.outcome.again) == ("unneeded", {})
    assert made.provider.calls["cancel"] == (not give_up)
    # It may have been at work until now.
    assert record.outcome.tokens is None


# Settings that ask for no jobs any more, while some are open.


def test_an_intent_that_was_never_sent_is_dropped_and_its_rows_are_embedded_in_realtime():
    made = rehearsal(on("submit", "credentials"), listed_after_s=50)
    with pytest.raises(StopRunError):
        made.run()
    in_realtime(made)
    begun = made.clock.now
    made.run()
    settled(made)
    # As long as the listing may lag.
    assert timedelta(seconds=60) <= made.clock.now - begun < timedelta(seconds=100)
    assert (made.provider.jobs, made.provider.calls["submit"]) == ([], 1)
    (record,) = made.records()
    assert (record.outcome.status, record.outcome.tokens) == ("abandoned", 0)
    assert "never sent" in record.outcome.note


@pytest.mark.parametrize("fault", [[], [on("find", "fail", times=4)]])
def test_an_intent_that_was_sent_after_all_is_found_waited_for_and_not_paid_for_again(fault):
    made = rehearsal(on("submit", "reply-lost"), *fault, listed_after_s=50)
    with pytest.raises(Crash):
        made.run(Process(crash_at=4, moment="after"))
    in_realtime(made)
    made.run()
    settled(made)
    assert [record.outcome.status for record in made.records()] == ["succeeded"]
    assert sum(made.provider.bill.jobs.values()) == 6 + 2


# Jobs whose rows have got vectors another way.


def overtaken(*faults, stop=False):
    """A job is open while all its rows have vectors: somebody embedded them in realtime."""
    made = rehearsal(*faults, segments=1, limits=BatchLimits(window_s=86_400))
    if stop:
        with pytest.raises(StopRunError):
            made.run()
    else:
        made.run(wait=False)
    records = {
        path: data
        for path, data in made.workspace.files.items()
        if path.startswith("indexes/jobs/jobs/")
    }
    for path in records:
        del made.workspace.files[path]
    in_realtime(made)
    made.run()
    made.workspace.files.update(records)
    made.options["new_jobs"], made.auto = True, False
    return made


def test_what_a_job_brings_that_nobody_needs_is_not_fetched_nor_waited_for():
    made = overtaken(on("job", "stick"))
    made.add(0, 1, ["new"])
    made.provider.jobs[0].faults.clear()
    made.run()
    assert made.fates().open == []
    useless, other = made.records()
    assert (other.outcome.status, made.provider.calls["outcomes"]) == ("succeeded", 1)
    assert (useless.outcome.status, useless.outcome.again) == ("unneeded", {})
    assert "have vectors already" in useless.outcome.note


def test_a_job_that_nobody_needs_does_not_end_a_run_by_being_late_or_unknown():
    made = overtaken(on("job", "stick"))
    made.clock.sleep(3 * 86_400)
    made.add(0, 1, ["new"])
    (job,) = made.provider.jobs
    real = made.provider.state

    def state(handle):
        if handle == job.handle:
            raise RefusedError("no such job", code="not-found")
        return real(handle)

    made.provider.state = state
    made.run()
    assert made.fates().open == []
    assert [record.outcome is None for record in made.records()] == [True, False]


def test_an_intent_whose_rows_have_vectors_is_not_sent():
    made = overtaken(on("submit", "credentials"), stop=True)
    made.add(0, 1, ["new"])
    made.run()
    assert made.fates().open == []
    assert made.paid_twice() == {}
    assert [record.outcome.status for record in made.records()] == ["abandoned", "succeeded"]
