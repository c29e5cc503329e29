"""Limits on jobs and requests that are under way, and on jobs in an hour."""

from datetime import UTC, datetime, timedelta

import pytest

from embedmill.batch_provider import BatchLimits
from embedmill.job_quota import JobQuota
from embedmill.testing.job_rehearsal import JobRehearsal

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def sent(**limits):
    """Moments of creation, for eight rows in files of two."""
    limits = BatchLimits(window_s=86_400, inputs_per_file=2, **limits)
    made = JobRehearsal(canaries=0, limits=limits, takes_s=600)
    made.add(0, 0, list("abcdefgh"))
    made.run()
    assert len(made.fates().vectors) == 8
    assert made.paid_twice() == {}
    return [job.handle.created_at for job in made.provider.jobs]


@pytest.mark.parametrize("limits", [{"jobs_at_a_time": 2}, {"enqueued_requests": 4}])
def test_no_more_is_under_way_than_the_provider_takes(limits):
    begun = sent(**limits)
    assert len(begun) == 4
    assert all(later - begun[at] >= timedelta(seconds=600) for at, later in enumerate(begun[2:]))


def test_no_more_jobs_are_created_in_an_hour_than_the_provider_takes():
    begun = sent(creations_per_hour=2)
    assert len(begun) == 4
    assert all(later - begun[at] >= timedelta(hours=1) for at, later in enumerate(begun[2:]))


def test_jobs_of_an_earlier_process_that_have_ended_count_as_well():
    limits = BatchLimits(window_s=86_400, inputs_per_file=2, creations_per_hour=2)
    made = JobRehearsal(canaries=0, limits=limits, takes_s=60)
    made.add(0, 0, list("abcd"))
    made.run()
    assert all(record.outcome is not None for record in made.records())
    made.add(0, 1, ["e"])
    made.run()
    begun = [job.handle.created_at for job in made.provider.jobs]
    assert len(begun) == 3
    assert begun[2] - begun[0] >= timedelta(hours=1)


def test_without_limits_all_are_created_at_once():
    begun = sent()
    assert begun[-1] - begun[0] < timedelta(minutes=1)


def test_jobs_that_were_taken_up_count_and_those_of_long_ago_do_not():
    quota = JobQuota(BatchLimits(creations_per_hour=2))
    quota.created(NOON - timedelta(hours=2))
    quota.created(NOON - timedelta(minutes=50))
    assert quota.open_from(NOON) is None
    quota.created(NOON)
    assert quota.open_from(NOON) == NOON + timedelta(minutes=10)


def test_a_job_that_is_alone_is_never_too_large():
    quota = JobQuota(BatchLimits(enqueued_requests=3))
    assert quota.has_room(0, 0, 10)
    assert not quota.has_room(1, 2, 2)
    assert quota.has_room(1, 2, 1)
