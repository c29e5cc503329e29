"""Result lines read by SIMD: equal to what the other parser reads, and left to it when odd."""

import numpy as np
import orjson
import pytest

from embedmill.batch_provider import NO_CREDIT
from embedmill.batch_providers.openai_results import outcomes_of
from embedmill.embedder import checked_rows
from embedmill.json_numbers import numbers_body, numbers_line
from embedmill.openai_replies import NO_MONEY
from embedmill.recipe import EmbeddingRecipe

RECIPE = EmbeddingRecipe(
    provider="openai",
    model="m",
    revision="",
    dimension=2,
    dtype="float32",
    normalise=False,
    document_prompt="",
    query_prompt="",
    max_tokens=8,
    metric="cosine",
)
GOOD = b"[3e-1, -4.0]"


def line(vector=GOOD, *, status=200, error=b"null", index=b"0", custom_id=b'"r"', usage=b""):
    return (
        b'{"id":"x","custom_id":%s,"response":{"status_code":%d,"body":{"object":"list","data":'
        b'[{"object":"embedding","index":%s,"embedding": %s}]%s}},"error":%s}'
        % (custom_id, status, index, vector, usage, error)
    )


def test_a_line_of_numbers_is_read_without_python_numbers():
    custom_id, items, usage = numbers_line(line(usage=b',"usage":{"total_tokens":7}'))
    assert (custom_id, usage) == ("r", {"total_tokens": 7})
    assert items[0].index == 0
    assert items[0].embedding.dtype == np.float32
    assert items[0].embedding.tolist() == np.float32([0.3, -4]).tolist()


ODD = {
    "null": line(b"[1, null]"),
    "NaN": line(b"[1, NaN]"),
    "text": line(b'["1", 2]'),
    "a number without end": line(b"[1, 123456789012345678901234567890]"),
    "base64": line(b'"AACAPw=="'),
    "no index": line(index=b"null"),
    "an index that is none": line(index=b'"0"'),
    "another status": line(status=500),
    "an error beside it": line(error=b'{"code":"x"}'),
    "no id": line(custom_id=b"null"),
    "not JSON": line()[:-9],
    "nothing": b"",
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_is_not_plain_is_left_to_the_other_parser(name):
    assert numbers_line(ODD[name]) is None


def test_a_body_of_mixed_vectors_is_left_to_the_other_parser():
    body = b'{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":"AACAPw=="}]}'
    assert numbers_body(body) is None


@pytest.mark.parametrize("name", ["null", "NaN", "no index", "another status", "no id"])
def test_odd_lines_have_their_outcome_all_the_same(name):
    (outcome,) = outcomes_of([ODD[name]], RECIPE)
    assert (outcome.vector is None) == (name != "no id")


def test_a_usage_that_is_no_object_costs_no_vector():
    for usage in (b',"usage":null', b',"usage":{"total_tokens":"7"}', b',"usage":3'):
        assert next(outcomes_of([line(usage=usage)], RECIPE)).custom_id == "r"


@pytest.mark.parametrize("code", sorted(NO_MONEY))
def test_a_row_that_nobody_pays_for_says_so_whatever_the_provider_calls_it(code):
    refused = {"status_code": 429, "body": {"error": {"code": code, "message": "no"}}}
    lines = [
        {"custom_id": "r", "response": refused, "error": None},
        {"custom_id": "r", "response": None, "error": {"code": code, "message": "no"}},
        {"custom_id": "r", "response": {"status_code": 402, "body": {}}, "error": None},
    ]
    for outcome in outcomes_of(map(orjson.dumps, lines), RECIPE):
        assert (outcome.failure.kind, outcome.failure.code) == ("retryable", NO_CREDIT)


def test_norms_at_the_ends_of_float32_are_measured():
    vectors = np.float32([[3e38, 0], [1e-30, 0], [0, 0], [np.inf, 0], [np.nan, 1], [0.6, 0.8]])
    _, failures = checked_rows(vectors, RECIPE)
    assert {row: error.code for row, error in failures.items()} == {
        2: "zero-vector",
        3: "not-finite",
        4: "not-finite",
    }
