"""Jobs that are still wanted, and what whoever asks for none is told of them."""

import pytest

from embedmill.job_records import JobRecords
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
    assert "intended 2026-01-01" in left_in(made).notice(waits=True)


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
