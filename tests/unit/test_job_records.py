"""Records of embedding jobs: what was written is read, or found damaged."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from embedmill.batch_provider import JobHandle
from embedmill.embedding_job import Buckets
from embedmill.errors import DamagedFileError, RefusedError
from embedmill.job_records import Intent, JobOutcome, JobRecord, JobRecords, job_key
from embedmill.job_requests import Requests
from embedmill.segment import SegmentKey
from embedmill.testing.job_rehearsal import JobRehearsal
from embedmill.text_index import Loan

A, B = SegmentKey(0, 3), SegmentKey(12, 0)
REQUESTS = Requests.of([((A, 0),), ((A, 2), (A, 5)), ((B, 1),), ((A, 7),)])
NOW = datetime(2026, 1, 1, 12, 30, 1, 250_000, tzinfo=UTC)
INTENT = Intent("key-1", NOW, "print", REQUESTS, 5, 100, 50, 2)
HANDLE = JobHandle("fake", "job-1", "file-1", NOW)
OUTCOME = JobOutcome(
    status="succeeded",
    buckets=Buckets(succeeded=2, retryable=2, permanent=1),
    tokens=49,
    ended=NOW.isoformat(),
    again={A: [0, 2]},
    alone={A: [2]},
    dead=((12, 0, 1, "refused", "no"),),
    note="a note",
)


@pytest.fixture
def made():
    return JobRehearsal()


@pytest.fixture
def records(made):
    return JobRecords(made.workspace, "jobs", made.names)


def test_a_job_is_read_as_it_was_written(records):
    records.intend(INTENT)
    assert list(records.all()) == [JobRecord(INTENT, None, None)]
    records.submitted("key-1", HANDLE)
    assert list(records.open()) == [JobRecord(INTENT, HANDLE, None)]
    records.collected("key-1", OUTCOME)
    assert list(records.all()) == [JobRecord(INTENT, HANDLE, OUTCOME)]
    assert list(records.open()) == []
    assert list(records.outcomes()) == [("key-1", OUTCOME)]


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        (JobRecord(replace(INTENT, provider="one"), None, None), True),
        (JobRecord(replace(INTENT, provider="other"), None, None), False),
        # Of before it was written down.
        (JobRecord(INTENT, None, None), False),
        # What was sent is known better from the job itself.
        (JobRecord(INTENT, replace(HANDLE, provider="one"), None), True),
        (
            JobRecord(replace(INTENT, provider="one"), replace(HANDLE, provider="other"), None),
            False,
        ),
    ],
)
def test_a_job_is_asked_about_where_it_was_sent(record, refused):
    if not refused:
        record.require_provider("other")
        return
    with pytest.raises(RefusedError, match=r"key-1 .* sent through one"):
        record.require_provider("other")


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        (JobRecord(replace(INTENT, account="old"), None, None), True),
        (JobRecord(replace(INTENT, account="new"), None, None), False),
        # Of before it was written down.
        (JobRecord(INTENT, None, None), False),
        # It exists: nothing is created again, and no other account knows its id.
        (JobRecord(replace(INTENT, account="old"), HANDLE, None), False),
    ],
)
def test_a_job_that_may_exist_is_looked_for_where_it_would_be(record, refused):
    if not refused:
        record.require_account("new")
        return
    with pytest.raises(RefusedError, match=r"key-1 may have been sent with another API key") as no:
        record.require_account("new")
    assert "embedmill jobs cancel key-1" in no.value.hint


def test_rows_are_known_by_segment():
    assert {key: list(rows) for key, rows in INTENT.rows().items()} == {A: [0, 2, 5, 7], B: [1]}
    assert list(Requests.of(REQUESTS)) == list(REQUESTS)


def test_a_key_follows_from_the_rows_and_how_often_they_were_sent():
    keys = {
        job_key(REQUESTS, 0),
        job_key(REQUESTS, 1),
        job_key(Requests.of([((A, 0),)]), 0),
        job_key(Requests.of([((A, 0), (A, 1))]), 0),
        job_key(Requests.of([((A, 0),), ((A, 1),)]), 0),
    }
    assert len(keys) == 5
    assert job_key(Requests.of(list(REQUESTS)), 0) in keys


def test_writing_the_same_again_changes_nothing_and_another_writer_is_noticed(records):
    records.submitted("key-1", HANDLE)
    records.submitted("key-1", HANDLE)
    with pytest.raises(DamagedFileError, match="another run"):
        records.submitted("key-1", JobHandle("fake", "job-2", "", NOW))


@pytest.mark.parametrize("name", ["intent", "submitted", "outcome"])
@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_a_torn_record_is_found_damaged(made, records, name, cut):
    records.intend(INTENT)
    records.submitted("key-1", HANDLE)
    records.collected("key-1", OUTCOME)
    (path,) = (path for path in made.workspace.files if path.endswith(f"/{name}.json"))
    made.workspace.files[path] = made.workspace.files[path][:cut]
    with pytest.raises(DamagedFileError):
        list(records.all())


def test_vectors_of_incomplete_segments_are_kept_and_found(records):
    vectors = np.arange(8, dtype=np.float32).reshape(2, 4)
    path = records.keep_rows("key-1", A, [4, 9], vectors)
    assert records.keep_rows("key-1", A, [4, 9], vectors) == path
    other = records.keep_rows("key-2", A, [5], vectors[:1])
    assert records.kept_rows() == {A: [path, other]}
    rows, found = records.read_rows(path, 4)
    assert (rows, found.tolist()) == ([4, 9], vectors.tolist())
    assert records.row_numbers(path) == [4, 9]
    with pytest.raises(DamagedFileError, match="another run"):
        records.keep_rows("key-1", A, [4, 9], vectors + 1)
    records.forget([path])
    assert records.kept_rows() == {A: [other]}


def test_kept_vectors_that_are_torn_are_found_damaged(made, records):
    path = records.keep_rows("key-1", A, [4], np.ones((1, 4), np.float32))
    made.workspace.files[path] = made.workspace.files[path][:-3]
    with pytest.raises(DamagedFileError):
        records.read_rows(path, 4)


def test_loans_are_kept_as_they_were_written_first(records):
    loans = [Loan(3, B, 7), Loan(4, SegmentKey(2, 2), 1)]
    path = records.lend(A, loans)
    assert records.lend(A, []) == path
    more = records.lend(A, [Loan(5, B, 8)], more=True)
    assert records.lent() == {A: [path, more]}
    assert records.loans(path) == loans
