import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.embedders.halving import failures_by_halving
from embedmill.embedders.length_batches import length_batches
from embedmill.errors import PermanentError, TransientError
from embedmill.local_model import BatchForm


def test_batches_are_sorted_by_length_and_have_few_rows_of_long_texts():
    lengths = {0: 5, 1: 200, 2: 7, 3: 190, 4: 180, 5: 6}
    assert list(length_batches(lengths, BatchForm(2, 400))) == [[1, 3], [4, 2], [5, 0]]


def test_short_texts_share_a_batch_up_to_the_tokens():
    lengths = dict.fromkeys(range(25), 10)
    assert [len(batch) for batch in length_batches(lengths, BatchForm(2, 100))] == [10, 10, 5]
    assert [len(batch) for batch in length_batches(lengths, BatchForm(8, 0))] == [8, 8, 8, 1]


def test_the_last_batches_become_smaller_so_that_all_streams_end_together():
    lengths = dict.fromkeys(range(40), 100)
    sizes = [len(batch) for batch in length_batches(lengths, BatchForm(8, 2000, 2, 300))]
    assert sizes == [10, 7, 5, 4, 3, 3, 3, 3, 2]
    # A text that is longer than the smallest batch has one of its own.
    assert list(length_batches({1: 900, 2: 800}, BatchForm(8, 2000, 2, 300))) == [[1], [2]]


def test_nothing_makes_no_batch():
    assert list(length_batches({}, BatchForm(8, 100, 2, 50))) == []


@given(
    lengths=st.dictionaries(st.integers(0, 500), st.integers(1, 300)),
    rows=st.integers(1, 9),
    tokens=st.integers(0, 3000),
    streams=st.integers(1, 4),
    smallest=st.integers(0, 600),
)
def test_every_text_is_in_exactly_one_batch(lengths, rows, tokens, streams, smallest):
    batches = list(length_batches(lengths, BatchForm(rows, tokens, streams, smallest)))
    assert sorted(key for batch in batches for key in batch) == sorted(lengths)
    for batch in batches:
        assert len(batch) <= rows or len(batch) * max(lengths[key] for key in batch) <= tokens


class Poisoned:
    """Computes rows, but no batch with a poisoned row in it."""

    def __init__(self, *poisoned, limit=1000):
        self.done = []
        self.calls = 0
        self._poisoned = set(poisoned)
        self._limit = limit

    def __call__(self, rows):
        self.calls += 1
        if len(rows) > self._limit:
            return TransientError("memory")
        if self._poisoned.intersection(rows):
            return PermanentError(f"cannot compute {rows}")
        self.done += rows
        return None


def test_a_poisoned_row_fails_alone_and_its_neighbours_succeed():
    compute = Poisoned(5, 70)
    failures = failures_by_halving(list(range(100)), compute)
    assert {row: str(error) for row, error in failures.items()} == {
        5: "cannot compute [5]",
        70: "cannot compute [70]",
    }
    assert sorted(compute.done) == [row for row in range(100) if row not in {5, 70}]
    # Two paths down from 100 rows.
    assert compute.calls < 30


def test_what_is_too_large_together_is_computed_in_halves():
    compute = Poisoned(limit=8)
    assert failures_by_halving(list(range(50)), compute) == {}
    assert sorted(compute.done) == list(range(50))


def test_one_row_that_fails_for_another_reason_than_its_own_is_raised():
    with pytest.raises(TransientError, match="memory"):
        failures_by_halving([1, 2], Poisoned(limit=0))


def test_no_rows_are_never_computed():
    compute = Poisoned()
    assert failures_by_halving([], compute) == {}
    assert compute.calls == 0
