"""Samples of chunks: fair, bounded, the same every time."""

import numpy as np

from embedmill.bootstrap import mean_interval
from embedmill.chunk_sample import VectorHealth, _quotas, sampled_chunks
from embedmill.testing.rehearsal import made_up_texts


def sample(index, size):
    return sampled_chunks(index.chunks, index.vectors, index.applied, size)


def test_a_sample_has_no_chunk_twice_and_is_the_same_again(small_index):
    index = small_index(run={"segment_chunks": 16})
    index.ingest(made_up_texts(40, longest=40))
    found = sample(index, 50)
    assert len(found) == len(set(found.ids)) == 50
    assert set(found.ids) <= index.expected_ids()
    again = sample(index, 50)
    assert found.ids == again.ids
    np.testing.assert_array_equal(found.vectors, again.vectors)


def test_a_sample_larger_than_the_index_is_all_of_it(small_index):
    index = small_index(run={"segment_chunks": 16})
    index.ingest(made_up_texts(10, longest=30))
    assert set(sample(index, 10_000).ids) == index.expected_ids()


def test_what_a_later_run_replaced_or_removed_is_not_drawn(small_index):
    index = small_index()
    index.ingest({f"d{n}": f"old text number {n} here" for n in range(30)})
    index.ingest({f"d{n}": f"new text number {n} there" for n in range(20)})
    found = sample(index, 1_000)
    assert set(found.ids) == index.expected_ids()
    assert all("old" not in text for text in found.texts)


def test_quotas_are_even_and_never_more_than_there_is():
    assert _quotas([100, 100], 10) == [5, 5]
    assert _quotas([2, 100, 100], 10) == [2, 4, 4]
    assert sum(_quotas([3, 1, 0, 2], 100)) == 6
    assert _quotas([1] * 32, 5) == [1] * 5 + [0] * 27
    assert _quotas([], 5) == []


def test_equal_vectors_count_only_between_different_texts():
    health = VectorHealth()
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    texts = ["same words", " SAME  words", "one", "two", "cut"]
    health.take(vectors, texts, [False] * 4 + [True])
    assert (health.rows, health.compared, health.shared) == (5, 4, 1)


def test_the_interval_of_a_mean_is_right_and_repeats():
    dice = np.random.default_rng(1)
    values = dice.normal(0.1, 1.0, 400)
    low, high = mean_interval(list(values))
    assert mean_interval(list(values)) == (low, high)
    # The normal approximation: 1.96 standard errors of 1 / 20.
    assert abs(low - (values.mean() - 0.098)) < 0.02
    assert abs(high - (values.mean() + 0.098)) < 0.02
    assert mean_interval([0.5]) == (0.5, 0.5)
