"""Comparing outcomes with what was sent, and states with what they mean."""

import numpy as np
import pytest

from embedmill.batch_provider import QUEUE_FULL, JobError, JobState, RowFailure, RowOutcome
from embedmill.batch_providers.openai_wire import WireBatch, state_of
from embedmill.outcome_check import OutcomeCheck

VECTOR = np.ones(2, np.float32)


def good(custom_id, index):
    return RowOutcome(custom_id, index, vector=VECTOR)


def failed(custom_id, index=None):
    return RowOutcome(custom_id, index, failure=RowFailure("retryable", "server", "no"))


@pytest.mark.parametrize(
    ("outcomes", "anomalies", "missing"),
    [
        ([good("a", 1), good("b", 0), good("a", 0)], {}, []),
        ([good("a", 1)], {}, [("a", 0), ("b", 0)]),
        ([failed("a"), good("b", 0)], {}, []),
        ([failed("a", 0), good("a", 1), good("b", 0)], {}, []),
        ([good("a", 0), failed("a"), good("b", 0)], {}, []),
        ([good("a", 0), good("a", 0)], {"double": 1}, [("a", 1), ("b", 0)]),
        ([failed("a"), failed("a")], {"double": 1}, [("b", 0)]),
        ([failed("b"), good("b", 0)], {"double": 1}, [("a", 0), ("a", 1)]),
        ([good("c", 0)], {"unknown-id": 1}, [("a", 0), ("a", 1), ("b", 0)]),
        ([good("b", 1), good("b", -1)], {"unknown-index": 2}, [("a", 0), ("a", 1), ("b", 0)]),
        ([good(None, 0), good("", 0)], {"no-id": 2}, [("a", 0), ("a", 1), ("b", 0)]),
        ([failed(None)], {}, [("a", 0), ("a", 1), ("b", 0)]),
    ],
)
def test_each_text_is_seen_once_missing_or_an_anomaly(outcomes, anomalies, missing):
    check = OutcomeCheck({"a": 2, "b": 1})
    said = [check.see(outcome) for outcome in outcomes]
    assert dict(check.anomalies) == anomalies
    assert sum(anomaly is not None for anomaly in said) == sum(anomalies.values())
    assert list(check.missing()) == missing


@pytest.mark.parametrize(
    ("status", "terminal"),
    [
        ("pending", False),
        ("running", False),
        ("finalizing", False),
        ("unknown", False),
        ("succeeded", True),
        ("expired", True),
        ("cancelled", True),
        ("failed", True),
    ],
)
def test_a_state_is_terminal_or_not(status, terminal):
    assert JobState(status, "as they say").terminal == terminal


def test_only_a_failed_job_says_that_the_queue_is_full():
    errors = (JobError(QUEUE_FULL, "too many"),)
    assert JobState("failed", "failed", errors=errors).queue_full
    assert not JobState("running", "in_progress", errors=errors).queue_full
    assert not JobState("failed", "failed", errors=(JobError("other", ""),)).queue_full


@pytest.mark.parametrize(
    ("code", "message", "too_large"),
    [
        ("too_many_tasks", "the limit of this model is 50000", True),
        ("invalid_request", "The batch input file is too large.", True),
        ("invalid_request", "The batch input file is larger than the 209715200 maximum", True),
        ("invalid_request", "File size exceeds the maximum allowed", True),
        ("invalid_request", "There are too many requests in the file", True),
        ("invalid_request", "The file contains too many requests: 60000", True),
        # Halves would meet the same.
        ("rate_limit_exceeded", "Too many requests. Please try again later.", False),
        ("too_many_batches", "The organization has too many batches in progress", False),
        ("invalid_request", "The files of the organization exceed its storage", False),
        ("insufficient_quota", "You exceeded your current quota", False),
        ("billing_hard_limit_reached", "The batch input file is too large", False),
        ("invalid_request", "Your upload exceeded the storage quota", False),
        ("invalid_request", "The upload exceeded the rate of 10 per minute", False),
        ("invalid_request", "There are too many tasks in progress", False),
        ("invalid_request", "The file contains more than one record per line", False),
        ("invalid_request", "The dataset has too many invalid rows", False),
        ("invalid_request", "The dataset has more than 50,000 rows", True),
        ("invalid_request", "Payload too large", True),
    ],
)
def test_smaller_files_are_sent_only_where_the_size_was_refused(code, message, too_large):
    error = {"code": code, "message": message, "line": None}
    batch = WireBatch(id="batch_1", status="failed", created_at=0, errors={"data": [error]})
    assert state_of(batch).too_large is too_large
