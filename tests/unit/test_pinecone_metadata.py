"""Payloads as metadata of Pinecone and back."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pinecone")

from embedmill.errors import RefusedError
from embedmill.payload import conditions_of, json_ready, matches
from embedmill.testing.pinecone_fake_checks import kept_metadata
from embedmill.testing.pinecone_fake_filters import check_filter, meets
from embedmill.vector_stores.pinecone_metadata import FIND, REST, filter_of, metadata_of, payload_of

KEYS = st.one_of(
    st.sampled_from(
        ["lang", "a", "b", "a.b", "", "$eq", "_values", "embedmill_rest", "ключ", "x\0"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**53, 2**53 - 1, 2**53 + 1, -(2**53), 0, 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([3.0, -0.0, 0.0, 2.0**60, 5e-324]),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SCALARS = st.one_of(TEXTS, NUMBERS, st.booleans())
VALUES = st.recursive(
    st.one_of(SCALARS, st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(TEXTS, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)
PAYLOADS = st.dictionaries(KEYS, VALUES, max_size=5)


def as_the_server_keeps(metadata):
    """Checked as the server does, numbers as float64, over the wire and back."""
    return orjson.loads(orjson.dumps(kept_metadata(orjson.loads(orjson.dumps(metadata)))))


@given(PAYLOADS)
def test_every_payload_comes_back_as_it_was_with_its_types(payload):
    json_ready(payload)
    back = payload_of(as_the_server_keeps(metadata_of(payload)))
    # Equal texts: 3, 3.0, True and 1 are told apart, and so is minus zero.
    assert orjson.dumps(back, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        payload, option=orjson.OPT_SORT_KEYS
    )


@given(PAYLOADS, st.dictionaries(KEYS, st.lists(SCALARS, min_size=1, max_size=3), max_size=2))
def test_a_filter_lets_through_what_the_contract_says(payload, where):
    # Often one that could match.
    for key in list(where)[:1]:
        payload = {**payload, key: where[key][0]}
    condition = filter_of(where)
    if condition is not None:
        check_filter(condition)
    met = condition is None or meets(as_the_server_keeps(metadata_of(payload)), condition)
    assert met == matches(payload, conditions_of(where))


@given(st.dictionaries(KEYS, st.lists(SCALARS, max_size=3), min_size=1, max_size=3))
def test_what_a_list_holds_is_found_by_each_of_its_elements(payload):
    metadata = as_the_server_keeps(metadata_of(payload))
    for key, values in payload.items():
        for value in values:
            assert meets(metadata, filter_of({key: value}))


def test_a_chunks_payload_can_be_read_and_filtered_by_people():
    payload = {
        "doc_id": "guide/a.md",
        "chunk_index": 3,
        "text": "Some text.",
        "headings": ["Guide", "First"],
        "uri": "guide/a.md",
        "metadata": {"lang": "en", "year": 2026, "pages": {"from": 1}, "tags": ["x"], "gone": None},
    }
    assert metadata_of(payload) == {
        "doc_id": "guide/a.md",
        "chunk_index": 3,
        "text": "Some text.",
        "headings": ["Guide", "First"],
        "uri": "guide/a.md",
        "metadata.lang": "en",
        "metadata.year": 2026,
        "metadata.pages.from": 1,
        "metadata.tags": ["x"],
        REST: '{"metadata":{"gone":null}}',
    }


def test_a_dotted_key_and_a_nested_one_do_not_meet():
    payload = {"a.b": 1, "a": {"b": 2}}
    metadata = metadata_of(payload)
    assert metadata["a.b"] == 2
    assert metadata[FIND] == ['["a.b",1.0]']
    assert payload_of(metadata) == payload


def test_a_long_text_that_only_the_rest_can_hold_is_not_there_three_times():
    text = "x" * 10_000 + "\0"
    metadata = metadata_of({"text": text})
    assert len(orjson.dumps(metadata)) < 10_200
    assert meets(metadata, filter_of({"text": text}))
    assert not meets(metadata, filter_of({"text": text + "x"}))


def test_too_many_values_of_a_filter_are_refused():
    with pytest.raises(RefusedError, match="10,001"):
        filter_of({"key": list(range(10_001))})
