"""Collecting: all outcomes of a job in the order of its rows, or none of them."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.batch_provider import RowFailure, RowOutcome
from embedmill.errors import TransientError
from embedmill.job_collecting import collect
from embedmill.job_records import Intent
from embedmill.job_requests import Requests, custom_id
from embedmill.segment import SegmentKey

A, B = SegmentKey(0, 3), SegmentKey(1, 0)
REQUESTS = [((A, 0),), ((A, 2), (A, 5)), ((B, 1), (B, 2), (B, 4))]
PLACES = [place for request in REQUESTS for place in request]
KNOWN = np.eye(4, dtype=np.float32)[:2]
REFUSED = RowFailure("permanent", "invalid_request", "no")
FAILED = RowFailure("retryable", "server_error", "500")


def vector(place):
    key, row = place
    return np.array([key.shard, key.number, row, 1], np.float32)


def intent(canaries=2):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Intent("k", now, "f", Requests.of(REQUESTS), len(PLACES), 1, 1, canaries)


def good_outcomes():
    found = [RowOutcome(f"canary.{at}", 0, KNOWN[at], tokens=5) for at in range(2)]
    for request in REQUESTS:
        for at, place in enumerate(request):
            tokens = 7 if at == 0 else 0
            found.append(RowOutcome(custom_id(request), at, vector(place), tokens=tokens))
    return found


def collected(outcomes, folder, *, canaries=2, known=KNOWN):
    return collect(intent(canaries), outcomes, dimension=4, canaries=known, scratch=folder)


def vectors_of(found):
    return {
        (key, row): data.tolist()
        for key, rows, vectors in found.segments()
        for row, data in zip(rows, vectors, strict=True)
    }


@pytest.fixture
def read(tmp_path):
    """Collects some outcomes; returns vectors by place, failures by place, and the rest."""

    def collect_them(outcomes, **more):
        with collected(outcomes, tmp_path, **more) as found:
            failed = {(f.key, f.row): (f.failure.code, f.shared, f.missing) for f in found.failed}
            assert len(failed) == len(found.failed)
            return vectors_of(found), failed, found

    yield collect_them
    assert list(tmp_path.iterdir()) == []


@given(st.permutations(range(len(PLACES) + 2)))
def test_whatever_their_order_all_vectors_find_their_rows(tmp_path_factory, order):
    outcomes = good_outcomes()
    with collected([outcomes[at] for at in order], tmp_path_factory.mktemp("c")) as found:
        assert vectors_of(found) == {place: vector(place).tolist() for place in PLACES}
        assert (found.failed, found.problem, found.tokens) == ([], "", 31)


def test_a_row_that_is_missing_is_named_and_the_others_are_used(read):
    outcomes = good_outcomes()
    del outcomes[4]
    vectors, failed, found = read(outcomes)
    assert failed == {(A, 5): ("missing", False, True)}
    assert len(vectors) == len(PLACES) - 1
    assert found.problem == ""


@pytest.mark.parametrize(
    "extra",
    [
        good_outcomes()[4],
        RowOutcome("9.9.9", 0, KNOWN[0]),
        RowOutcome("0.3.0", 1, KNOWN[0]),
        RowOutcome("0.3.0", -1, KNOWN[0]),
        RowOutcome(None, 0, KNOWN[0]),
        RowOutcome("", 0, KNOWN[0]),
        RowOutcome("canary.0", 0, KNOWN[0]),
        RowOutcome("canary.7", 0, KNOWN[0]),
        RowOutcome("0.3.0", None, failure=FAILED),
    ],
    ids=[
        "double",
        "foreign",
        "index too high",
        "index below zero",
        "no id",
        "empty id",
        "double known text",
        "foreign known text",
        "also failed",
    ],
)
def test_an_outcome_that_belongs_to_nothing_that_was_sent_spoils_all(read, extra):
    _, _, found = read([*good_outcomes(), extra])
    assert found.problem


@pytest.mark.parametrize("name", [None, ""])
def test_a_failure_without_an_id_leaves_its_row_missing(read, name):
    outcomes = good_outcomes()
    outcomes[2] = RowOutcome(name, None, failure=FAILED)
    _, failed, found = read(outcomes)
    assert failed == {(A, 0): ("missing", False, True)}
    assert found.problem == ""


def test_a_request_that_failed_fails_all_its_rows(read):
    outcomes = [*good_outcomes()[:5], RowOutcome("1.0.1", None, failure=REFUSED)]
    vectors, failed, found = read(outcomes)
    expected = ("invalid_request", True, False)
    assert failed == {(B, 1): expected, (B, 2): expected, (B, 4): expected}
    assert len(vectors) == 3
    assert found.problem == ""


def test_a_request_that_failed_after_some_of_its_rows_fails_the_others_once(read):
    outcomes = [
        *good_outcomes()[:6],
        RowOutcome("1.0.1", 1, failure=REFUSED),
        RowOutcome("1.0.1", None, failure=FAILED),
    ]
    vectors, failed, _ = read(outcomes)
    assert failed == {
        (B, 2): ("invalid_request", False, False),
        (B, 4): ("server_error", True, False),
    }
    assert (B, 1) in vectors


def test_a_request_of_one_row_that_failed_was_not_shared(read):
    outcomes = good_outcomes()
    outcomes[2] = RowOutcome("0.3.0", None, failure=REFUSED)
    _, failed, _ = read(outcomes)
    assert failed == {(A, 0): ("invalid_request", False, False)}


def test_known_texts_with_right_answers_are_no_rows(read):
    vectors, _, found = read(good_outcomes())
    assert vectors.keys() == set(PLACES)
    assert found.problem == ""


@pytest.mark.parametrize(
    "answer", [KNOWN[1], -KNOWN[0], np.array([1, 0.2, 0, 0], np.float32), np.zeros(4, np.float32)]
)
def test_a_wrong_answer_to_a_known_text_spoils_all(read, answer):
    outcomes = good_outcomes()
    outcomes[0] = RowOutcome("canary.0", 0, answer)
    _, _, found = read(outcomes)
    assert "known text 0" in found.problem


def test_an_answer_that_is_nearly_the_known_one_is_right(read):
    outcomes = good_outcomes()
    outcomes[0] = RowOutcome("canary.0", 0, np.array([2, 0.01, 0, 0], np.float32))
    assert read(outcomes)[2].problem == ""


def test_a_known_text_that_failed_or_is_missing_says_nothing(read):
    outcomes = good_outcomes()
    outcomes[0] = RowOutcome("canary.0", None, failure=FAILED)
    del outcomes[1]
    assert read(outcomes)[2].problem == ""


@pytest.mark.parametrize("known", [None, KNOWN[:1]])
def test_known_texts_that_nobody_knows_any_more_are_let_be(read, known):
    assert read(good_outcomes(), known=known)[2].problem == ""


@pytest.mark.parametrize("outcomes", [[], good_outcomes()[:2]], ids=["nothing", "known texts"])
def test_results_that_mention_no_row_at_all_are_not_to_be_trusted(read, outcomes):
    assert "none of the rows" in read(outcomes)[2].problem


def test_outcomes_that_break_off_leave_nothing_behind(tmp_path):
    def broken():
        yield from good_outcomes()[:3]
        raise TransientError("no more")

    with pytest.raises(TransientError):
        collected(broken(), tmp_path)
    # The file is written anew by the next try.
    with collected(good_outcomes(), tmp_path) as found:
        assert found.failed == []
