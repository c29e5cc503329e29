"""Documents that change while their texts are in a job: who finishes, who cancels, who pays."""

from datetime import timedelta

import pytest

from embedmill.batch_provider import BatchLimits
from embedmill.errors import RefusedError
from embedmill.job_cancelling import cancel_job, give_up_job
from embedmill.job_records import JobRecords
from embedmill.segment import SegmentKey
from embedmill.testing.fake_batch_provider import ProviderFault
from embedmill.testing.job_rehearsal import JobRehearsal

FIRST, SECOND = SegmentKey(0, 0), SegmentKey(0, 1)


def rehearsal(*faults, share=0.5, **more):
    """Six documents of one shard whose texts are in a job that runs."""
    more.setdefault("limits", BatchLimits(window_s=86_400))
    made = JobRehearsal(*faults, canaries=0, **more)
    made.options["stale_share"] = share
    made.add(0, 0, ["a", "b", "c", "d", "e", "f"])
    made.run(wait=False)
    return made


def test_a_job_with_too_many_stale_rows_is_cancelled_and_only_what_is_wanted_is_sent_again():
    made = rehearsal()
    made.add(0, 1, ["a2", "b2"], instead_of={0: (0, 0), 1: (0, 1)}, gone=[(0, 4), (0, 5)])
    made.run()
    fates = made.fates()
    assert (fates.open, fates.wrong, fates.dead) == ([], [], {})
    # Half of the job was executed before it ended: that is kept, wanted or not.
    assert fates.superseded == [(FIRST, 4), (FIRST, 5)]
    assert made.paid_twice() == {}
    assert made.provider.bill.times.keys() == {"a", "b", "c", "d", "a2", "b2"}
    statuses = [record.outcome.status for record in made.records()]
    assert statuses.count("cancelled") == 1
    done = dict(made.done)[FIRST]
    assert (done.counts.chunks, done.counts.embedded, done.counts.superseded) == (6, 4, 2)
    assert not done.failures


def test_without_the_setting_a_job_is_left_to_finish():
    made = rehearsal(share=None)
    made.add(0, 1, [], gone=[(0, row) for row in range(6)])
    made.run()
    assert len(made.fates().vectors) == 6
    assert made.provider.calls["cancel"] == 0


def test_a_job_with_few_stale_rows_is_left_to_finish():
    made = rehearsal(share=0.5)
    made.add(0, 1, [], gone=[(0, 0), (0, 1)])
    made.run()
    assert made.provider.calls["cancel"] == 0
    assert len(made.fates().vectors) == 6


def test_a_text_that_another_document_wants_is_not_stale():
    made = rehearsal()
    same = [(0, row) for row in range(6)]
    made.add(0, 1, list("abcdef"), same_as=same, instead_of={row: (0, row) for row in range(6)})
    made.run()
    assert made.provider.calls["cancel"] == 0
    assert made.fates().superseded == []
    assert made.paid_twice() == {}


def test_stale_rows_that_were_not_sent_yet_are_never_sent():
    made = rehearsal(limits=BatchLimits(window_s=86_400, inputs_per_file=4, enqueued_tokens=40))
    # Four rows fly, two wait for room.
    made.add(0, 1, [], gone=[(0, 4), (0, 5)])
    made.run()
    assert made.provider.bill.times.keys() == set("abcd")
    assert made.fates().superseded == [(FIRST, 4), (FIRST, 5)]


def test_a_row_found_stale_by_a_later_process_whose_segment_is_complete():
    made = rehearsal()
    made.add(0, 1, [], gone=[(0, row) for row in range(6)])
    # The later segment has no rows, and so its vectors at once.
    made.run(wait=False)
    assert SECOND not in made.waiting()
    made.run()
    assert made.fates().open == []
    assert made.provider.calls["cancel"] >= 1
    assert sum(made.provider.bill.times.values()) == 3


def test_a_cancellation_that_fails_is_asked_for_again():
    made = rehearsal(ProviderFault("cancel", "fail", times=2))
    made.add(0, 1, [], gone=[(0, row) for row in range(6)])
    made.run()
    assert made.provider.calls["cancel"] == 3
    assert len(made.fates().superseded) == 3


def test_stale_rows_of_a_file_that_the_provider_does_not_take_yet_are_never_sent():
    made = JobRehearsal(ProviderFault("submit", "queue-full"), canaries=0)
    made.options["stale_share"] = 0.5
    made.add(0, 0, ["a", "b"])
    lost(made)
    made.add(0, 1, ["z"], gone=[(0, 0), (0, 1)])
    made.run()
    assert made.provider.bill.times.keys() == {"z"}
    assert made.fates().superseded == [(FIRST, 0), (FIRST, 1)]


LOSING = BatchLimits(window_s=86_400, cancelled_rows_are_kept=False)


def test_where_a_cancelled_job_loses_what_it_did_it_is_cancelled_only_when_nobody_wants_any_of_it():
    made = rehearsal(limits=LOSING)
    made.add(0, 1, [], gone=[(0, row) for row in range(5)])
    made.run(wait=False)
    assert made.provider.calls["cancel"] == 0
    made.add(0, 2, [], gone=[(0, 5)])
    made.run()
    assert made.provider.calls["cancel"] == 1


def test_where_a_cancelled_job_loses_what_it_did_a_deadline_waits_for_it():
    made = JobRehearsal(canaries=0, limits=LOSING)
    made.auto = True
    made.options["deadline"] = made.clock.now + timedelta(seconds=60)
    made.add(0, 0, ["a", "b"])
    made.run()
    assert made.provider.calls["cancel"] == 0
    assert made.paid_twice() == {}
    assert made.provider.bill.jobs.keys() == {"a", "b"}


# Cancelling by hand.


def records_of(made):
    return JobRecords(made.workspace, "jobs", made.names)


def intended(*faults, **more):
    """An intent that its process submitted, or not, before it was lost."""
    made = JobRehearsal(*faults, canaries=0, **more)
    made.add(0, 0, ["a", "b"])
    if faults:
        lost(made)
    else:
        made.run(wait=False)
    return made


def lost(made):
    with pytest.raises(AssertionError, match="no end"):
        made.run(limit=0)


def cancelled(made):
    (record,) = made.records()
    return cancel_job(
        record, records_of(made), made.provider, clock=made.clock, sleep=made.clock.sleep
    )


def test_an_intent_that_was_never_submitted_is_looked_for_until_the_listing_can_be_believed():
    made = intended(ProviderFault("submit", "unknown"))
    before = made.clock.now
    assert cancelled(made) is None
    assert made.clock.now - before >= timedelta(seconds=60)
    assert made.provider.calls["find"] >= 2
    (record,) = made.records()
    assert (record.outcome.status, record.outcome.counted) == ("abandoned", False)
    made.run()
    assert len(made.fates().vectors) == 2
    assert made.paid_twice() == {}


def test_a_job_that_is_listed_late_is_found_and_cancelled_and_not_paid_for_twice():
    made = intended(ProviderFault("submit", "reply-lost"), listed_after_s=50)
    handle = cancelled(made)
    assert handle == made.provider.jobs[0].handle
    assert made.provider.calls["cancel"] == 1
    made.run()
    assert len(made.fates().vectors) == 2
    assert made.paid_twice() == {}


def test_a_job_that_has_ended_cannot_be_cancelled():
    made = intended()
    made.run()
    with pytest.raises(RefusedError, match="has ended"):
        cancelled(made)


def test_a_job_that_nobody_can_reach_is_given_up_without_asking_and_its_rows_are_sent_again():
    made = intended()
    (record,) = made.records()
    give_up_job(record, records_of(made), clock=made.clock)
    assert made.provider.calls["cancel"] == 0
    with pytest.raises(RefusedError, match="has ended: abandoned"):
        give_up_job(made.records()[0], records_of(made), clock=made.clock)
    made.run()
    assert len(made.records()) == 2
    assert len(made.fates().vectors) == 2
