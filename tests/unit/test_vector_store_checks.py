"""What is found before the wire: payloads, vectors, ids, names, filters."""

import enum
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.errors import RefusedError
from embedmill.payload import (
    MAX_PAYLOAD_DEPTH,
    conditions_of,
    json_ready,
    longer_than,
    matches,
)
from embedmill.store_checks import check_batch, check_name
from embedmill.testing.counting_store_contract import a_batch, record_ids, unit_vectors
from embedmill.vector_store import CollectionSpec, StoreLimits, VectorBatch

LIMITS = StoreLimits(records=10, request_bytes=1000, payload_bytes=1000, writers=1)
UNIT = CollectionSpec(16, "cosine", normalised=True)
FREE = CollectionSpec(16, "cosine", normalised=False)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Colour(enum.Enum):
    RED = "red"


class Text(str):
    __slots__ = ()


@given(st.dictionaries(st.text(), json_values))
def test_everything_that_json_holds_passes_and_comes_back_equal(payload) -> None:
    assert orjson.loads(json_ready(payload)) == payload


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("-inf"),
        2**63,
        -(2**63) - 1,
        b"raw",
        "\ud800",
        datetime(2024, 1, 1, tzinfo=UTC),
        Decimal("1.10"),
        uuid.UUID(int=1),
        np.float64(1.0),
        np.int64(1),
        Colour.RED,
        Text("subclass"),
        {1, 2},
        {1: "key"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [0, v], lambda v: {"a": [{"b": v}]}])
def test_what_json_or_a_store_would_change_is_refused_at_any_depth(value, wrap) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json_ready({"fine": 1, "key": wrap(value)})


@pytest.mark.parametrize(
    "value", [float("inf"), 2**63, uuid.UUID(int=1), [1, Colour.RED], {"a": {"b": float("nan")}}]
)
def test_one_odd_value_among_many_of_the_same_shape_is_found(value) -> None:
    payloads = [{"a": 1, "b": "text", "c": {"d": 0.5}} for _ in range(40)]
    payloads[23] = {"a": 1, "b": value, "c": {"d": 0.5}}
    assert check_batch(a_batch(40, payloads=payloads), UNIT, LIMITS)[2][0].row == 23


def test_nesting_is_refused_exactly_above_the_limit() -> None:
    nested: object = []
    for _ in range(MAX_PAYLOAD_DEPTH - 2):
        nested = [nested]
    assert json_ready({"a": nested})
    with pytest.raises(ValueError, match="nested"):
        json_ready({"a": [nested]})


def test_a_payload_that_contains_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    with pytest.raises(ValueError, match=r"\w"):
        json_ready(loop)


@pytest.mark.parametrize("payload", [None, [], "text"])
def test_a_payload_that_is_no_object_is_a_rejection(payload) -> None:
    batch = a_batch(3, payloads=[{}, payload, {}])
    _, good, rejections = check_batch(batch, UNIT, LIMITS)
    assert (good, [(r.row, r.code) for r in rejections]) == ([0, 2], [(1, "payload-type")])


@given(st.sets(st.integers(0, 599), max_size=20), st.sets(st.integers(0, 599), max_size=20))
def test_every_row_is_either_good_or_rejected_wherever_it_stands(bad_vectors, bad_payloads) -> None:
    batch = a_batch(600, payloads=[{"n": row} for row in range(600)])
    batch.vectors[list(bad_vectors)] = np.nan
    for row in bad_payloads:
        batch.payloads[row]["n"] = float("nan")
    kept, good, rejections = check_batch(batch, UNIT, LIMITS)
    bad = bad_vectors | bad_payloads
    assert good == [row for row in range(600) if row not in bad]
    assert [r.row for r in rejections] == sorted(bad)
    assert list(kept.ids) == [batch.ids[row] for row in good]
    np.testing.assert_array_equal(kept.vectors, batch.vectors[good])


def test_a_batch_without_faults_is_not_copied() -> None:
    batch = a_batch(5)
    assert check_batch(batch, UNIT, LIMITS)[0] is batch


def test_a_payload_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    payloads = [{"t": "x" * (1000 - 8)}, {"t": "x" * (1000 - 7)}]
    _, good, rejections = check_batch(a_batch(2, payloads=payloads), UNIT, LIMITS)
    assert (good, rejections[0].code) == ([0], "payload-too-large")
    assert "1,001" in rejections[0].message
    assert "1,000" in rejections[0].message


@given(st.lists(st.integers(0, 400), max_size=100))
def test_what_is_longer_than_a_limit_is_found_among_others(lengths) -> None:
    objects = [{"t": "x" * length} for length in lengths]
    assert longer_than(300, objects) == [row for row, n in enumerate(lengths) if n + 8 > 300]


def test_messages_carry_nothing_of_the_record() -> None:
    batch = a_batch(2, payloads=[{"private": [float("nan"), "secret words"]}, {}])
    rejection = check_batch(batch, UNIT, LIMITS)[2][0]
    assert "secret" not in rejection.message


@pytest.mark.parametrize("norm", [1e-4, 1e-30, 3e19])
def test_norms_that_float32_cannot_compute_with_are_rejected_under_cosine(norm) -> None:
    batch = a_batch(2)
    batch.vectors[1] *= norm
    assert [r.code for r in check_batch(batch, FREE, LIMITS)[2]] == ["norm-range"]


def test_a_tiny_vector_is_fine_where_its_length_is_not_divided_by() -> None:
    batch = a_batch(2)
    batch.vectors[1] *= 1e-6
    assert check_batch(batch, CollectionSpec(16, "dot", normalised=False), LIMITS)[2] == []


def test_a_norm_may_be_off_by_rounding_and_no_more() -> None:
    batch = a_batch(2)
    batch.vectors[0] *= 1.0005
    batch.vectors[1] *= 1.002
    assert [r.row for r in check_batch(batch, UNIT, LIMITS)[2]] == [1]


def test_an_id_that_is_no_uuid_is_a_rejection() -> None:
    batch = a_batch(3)
    odd = VectorBatch([batch.ids[0], "docs/a.md#0", batch.ids[2]], batch.vectors, batch.payloads)
    assert [(r.row, r.code) for r in check_batch(odd, UNIT, LIMITS)[2]] == [(1, "id-type")]


def test_of_equal_ids_all_but_the_last_are_rejected() -> None:
    one, two = record_ids(2)
    batch = VectorBatch([one, two, one, one], unit_vectors(4), [{}] * 4)
    _, good, rejections = check_batch(batch, UNIT, LIMITS)
    assert (good, [r.row for r in rejections]) == ([1, 3], [0, 2])
    assert "row 3" in rejections[0].message


def test_columns_of_different_lengths_and_other_dtypes_are_bugs() -> None:
    batch = a_batch(3)
    with pytest.raises(ValueError, match="length"):
        check_batch(VectorBatch(batch.ids, batch.vectors, [{}]), UNIT, LIMITS)
    doubles = batch.vectors.astype(np.float64)
    with pytest.raises(ValueError, match="float64"):
        check_batch(VectorBatch(batch.ids, doubles, batch.payloads), UNIT, LIMITS)


@pytest.mark.parametrize("name", ["a", "Notes_2.v-1", "0" * 200])
def test_ordinary_names_pass(name) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a\n", "a/../b", "é"])
def test_other_names_are_refused(name) -> None:
    with pytest.raises(RefusedError):
        check_name(name)


@pytest.mark.parametrize(
    ("stored", "wanted", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        ("1", 1, False),
        ([1, "x"], "x", True),
        ([[1]], 1, False),
        (None, "None", False),
        (2**60, 2**60, True),
        (2**60, 2**60 + 1, False),
        ([], "x", False),
    ],
)
def test_filters_compare_by_kind_and_value(stored, wanted, equal) -> None:
    assert matches({"key": stored}, conditions_of({"key": wanted})) is equal


def test_a_filter_needs_every_key() -> None:
    conditions = conditions_of({"a": 1, "b": ("x", "y")})
    assert matches({"a": 1, "b": "y"}, conditions)
    assert not matches({"a": 1}, conditions)
