"""Packing under several limits, and halving down to the row that a call chokes on."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.batching import by_halves, pack
from embedmill.errors import PermanentError, StopRunError


@st.composite
def packings(draw: st.DrawFn) -> tuple[int, int, dict[str, list[int]], dict[str, int]]:
    count = draw(st.integers(0, 60))
    names = draw(st.sets(st.sampled_from(["bytes", "tokens", "inputs"])))
    sizes = {
        name: draw(st.lists(st.integers(0, 30), min_size=count, max_size=count)) for name in names
    }
    limits = {name: draw(st.integers(0, 80)) for name in names}
    return count, draw(st.integers(1, 20)), sizes, limits


@given(packings())
def test_every_row_is_in_exactly_one_pack_and_in_order(packing) -> None:
    count, most_rows, sizes, limits = packing
    packs = list(pack(count, most_rows=most_rows, sizes=sizes, limits=limits))
    assert [row for part in packs for row in part.rows] == list(range(count))
    assert all(len(part.rows) > 0 for part in packs)


@given(packings())
def test_no_good_pack_exceeds_a_limit_and_a_bad_one_is_a_single_row_that_does(packing) -> None:
    count, most_rows, sizes, limits = packing
    for part in pack(count, most_rows=most_rows, sizes=sizes, limits=limits):
        sums = {name: sum(sizes[name][row] for row in part.rows) for name in sizes}
        if part.over:
            assert len(part.rows) == 1
            assert sums[part.over] > limits[part.over]
        else:
            assert len(part.rows) <= most_rows
            assert all(sums[name] <= limits[name] for name in sizes)


@given(packings())
def test_a_pack_ends_only_where_the_next_row_would_not_fit(packing) -> None:
    count, most_rows, sizes, limits = packing
    packs = list(pack(count, most_rows=most_rows, sizes=sizes, limits=limits))
    for part, following in itertools.pairwise(packs):
        longer = [*part.rows, following.rows[0]]
        assert (
            part.over
            or len(longer) > most_rows
            or any(sum(sizes[n][row] for row in longer) > limits[n] for n in sizes)
        )


def test_sums_beyond_32_bits_are_exact() -> None:
    sizes = {"bytes": [2**40] * 4}
    packs = list(pack(4, most_rows=10, sizes=sizes, limits={"bytes": 2**41}))
    assert [part.rows for part in packs] == [range(2), range(2, 4)]


@pytest.mark.parametrize(
    ("sizes", "limits"),
    [({"bytes": [1]}, {"bytes": 5}), ({}, {"bytes": 5}), ({"bytes": [1, 2]}, {})],
)
def test_a_limit_without_a_size_of_every_row_is_refused_at_once(sizes, limits) -> None:
    with pytest.raises(ValueError, match="every limit"):
        pack(2, most_rows=1, sizes=sizes, limits=limits)


def test_a_pack_of_no_rows_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="at least one"):
        pack(2, most_rows=0)


@given(st.integers(0, 200), st.data())
def test_halving_finds_exactly_the_bad_rows_and_the_good_ones_go_through_once(count, data) -> None:
    bad = data.draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=min(count, 5)))
    taken: list[int] = []
    calls = 0

    def call(rows) -> None:
        nonlocal calls
        calls += 1
        if bad.intersection(rows):
            raise PermanentError(f"one of {len(rows)}")
        taken.extend(rows)

    failures = by_halves(range(count), call)
    assert set(failures) == bad
    assert taken == [row for row in range(count) if row not in bad]
    assert calls <= 1 + len(bad) * 2 * 8


def test_what_is_not_about_the_rows_is_not_halved() -> None:
    calls = []

    def call(rows) -> None:
        calls.append(rows)
        raise StopRunError("disk full")

    with pytest.raises(StopRunError):
        by_halves(range(100), call)
    assert len(calls) == 1
