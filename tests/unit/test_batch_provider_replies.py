"""What replies of OpenAI-style servers mean, without a server."""

import base64
import math
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("msgspec")


from embedmill.batch_providers.openai_results import lines_of, outcomes_of
from embedmill.batch_providers.openai_wire import WireBatch, moment_of, state_of
from embedmill.batch_providers.resumable_download import Opened, download
from embedmill.errors import (
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.openai_replies import NO_MONEY, ErrorReply, detail_of, error_of, retry_after
from embedmill.openai_vectors import decode_body, decoded
from embedmill.recipe import EmbeddingRecipe

RECIPE = EmbeddingRecipe("openai", "m", "r", 2, "float32", True, "", "", 100, "cosine")


def reply(status, headers=None, **error):
    return ErrorReply(status, headers or {}, orjson.dumps({"error": error}))


@pytest.mark.parametrize(
    ("given", "kind", "code"),
    [
        (reply(400, message="bad"), PermanentError, "http-400"),
        (reply(400, code="max_tokens_per_request"), PermanentError, "max_tokens_per_request"),
        (reply(400, param="dimensions"), StopRunError, "embedder-settings"),
        (reply(401), StopRunError, "credentials"),
        (reply(402), StopRunError, "insufficient-quota"),
        (reply(403), StopRunError, "credentials"),
        (reply(404), RefusedError, "not-found"),
        (reply(404, code="model_not_found"), StopRunError, "embedder-settings"),
        (reply(410), RefusedError, "gone"),
        (reply(408), TransientError, "http-408"),
        (reply(413), PermanentError, "http-413"),
        (reply(429), RateLimitedError, "rate-limited"),
        (reply(429, code="slow_down"), RateLimitedError, "rate-limited"),
        (reply(429, type="insufficient_quota"), StopRunError, "insufficient-quota"),
        (reply(429, code="token_limit_exceeded"), TransientError, "enqueued-token-limit"),
        (reply(500), TransientError, "http-500"),
        (reply(529), TransientError, "http-529"),
        (ErrorReply(502, {}, b"<html><h1>Bad Gateway</h1></html>"), TransientError, "http-502"),
        (ErrorReply(500, {}, b"\xff\xfe"), TransientError, "http-500"),
        (ErrorReply(500, {}, b""), TransientError, "http-500"),
        (ErrorReply(400, {}, b'{"detail": "no such"}'), PermanentError, "http-400"),
        *[(reply(429, code=code), StopRunError, "insufficient-quota") for code in NO_MONEY],
    ],
)
def test_an_error_reply_says_what_to_do_next(given, kind, code):
    error = error_of(given, doing="asking", now=0.0)
    assert type(error) is kind
    assert error.code == code
    assert str(error).startswith("asking: ")


def test_a_message_is_short_and_holds_no_key_and_no_tags():
    detail = detail_of(orjson.dumps({"error": {"message": "key sk-abcdefghij0123456789 " * 90}}))
    assert "abcdefghij" not in detail.message
    assert len(detail.message) < 500
    page = b"<html><style>h1 {}</style><body><h1>502\n Bad</h1> Gateway</body></html>"
    assert detail_of(page).message == "502 Bad Gateway"


@pytest.mark.parametrize(
    ("headers", "message", "wait"),
    [
        ({"retry-after": "2", "retry-after-ms": "1500"}, "", 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:30 GMT"}, "", 80.0),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "1e999"}, "", None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360.0),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        (
            {
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "12ms",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1h2m",
            },
            "",
            3720.0,
        ),
        ({}, "Limit reached. Please try again in 1.2s. Visit us.", 1.2),
        ({}, "Please try again in a while", None),
        # A time that no clock has, and one that nobody waits out: it can be asked again.
        ({"retry-after": "1e300"}, "", 86_400.0),
        ({}, "Please try again in 900h.", 86_400.0),
    ],
)
def test_the_wait_is_read_wherever_it_stands(headers, message, wait):
    said = retry_after(ErrorReply(429, headers, b""), message, 10.0)
    assert said == (wait if wait is None else pytest.approx(wait))


def test_times_of_the_wire_are_numbers_or_texts():
    assert moment_of(0) == moment_of("1970-01-01T00:00:00Z") == moment_of("1970-01-01T00:00:00")


@pytest.mark.parametrize(
    ("status", "ours"),
    [("cancelling", "finalizing"), ("completed", "succeeded"), ("gone_fishing", "unknown")],
)
def test_statuses_are_in_our_own_words(status, ours):
    assert state_of(WireBatch("b", status)).status == ours


# Downloads.


@given(
    content=st.binary(max_size=200),
    breaks=st.lists(st.integers(1, 50), max_size=12),
    ranges=st.booleans(),
    silent=st.booleans(),
)
def test_a_download_yields_every_byte_once_wherever_it_breaks(content, breaks, ranges, silent):
    left = iter(breaks)

    @contextmanager
    def open_at(position):
        start = position if ranges else 0
        # Even without ranges each try gets further than the one before.
        limit = next(left, None)
        end = len(content) if limit is None else min(len(content), position + limit)

        def chunks():
            for at in range(start, end, 7):
                yield content[at : min(at + 7, end)]
            if end < len(content) and not silent:
                raise TransientError("broken off")

        yield Opened(start, len(content), chunks())

    got = b"".join(download(open_at, size=len(content), sleep=lambda _: None))
    assert got == content


def test_a_reply_that_begins_too_late_is_not_taken():
    @contextmanager
    def open_at(position):
        yield Opened(position + 1, 10, iter([b"x"]))

    with pytest.raises(TransientError) as error:
        list(download(open_at, size=10, sleep=lambda _: None))
    assert error.value.code == "truncated-results"


@given(
    lines=st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"."))),
    cuts=st.lists(st.integers(0, 90)),
    ended=st.booleans(),
)
def test_lines_are_whole_however_the_bytes_are_cut(lines, cuts, ended):
    text = b"\n".join(lines) + (b"\n" if ended else b"")
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    chunks = [text[a:b] for a, b in pairwise(edges)]
    whole = [line for block in lines_of(chunks) for line in block]
    assert whole == [line for line in lines if line and not line.isspace()]


# Vectors.


def packed(*values):
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()


def body_of(*embeddings):
    data = [{"index": index, "embedding": value} for index, value in embeddings]
    return {"data": data, "usage": {"total_tokens": 5}}


def row(custom_id, body, status=200, error=None):
    response = {"status_code": status, "body": body}
    return orjson.dumps({"custom_id": custom_id, "response": response, "error": error})


@pytest.mark.parametrize("embedding", [packed(0.6, 0.8), [0.6, 0.8]], ids=["base64", "list"])
def test_both_encodings_are_read(embedding):
    body = decode_body(orjson.dumps(body_of((0, embedding))))
    assert np.allclose(decoded(body.data, RECIPE).vectors, [[0.6, 0.8]])


def test_escaped_base64_is_read():
    text = packed(-0.28, 0.96)
    while "/" not in text:
        text = packed(*(np.random.default_rng(len(text)).normal(size=2)))
    escaped = orjson.dumps(body_of((0, text))).replace(b"/", b"\\/")
    recipe = EmbeddingRecipe("openai", "m", "r", 2, "float32", False, "", "", 100, "cosine")
    assert np.isfinite(decoded(decode_body(escaped).data, recipe).vectors).all()


# Three components: twelve bytes, whose base64 has no padding and can be joined.
THREE = replace(RECIPE, dimension=3)
WHOLE = [packed(0.6, 0.0, 0.8), packed(0.0, 1.0, 0.0), packed(0.8, 0.6, 0.0)]


def test_vectors_that_are_decoded_in_one_go_stay_in_their_rows():
    found = decoded(decode_body(orjson.dumps(body_of(*enumerate(WHOLE)))).data, THREE)
    assert np.allclose(found.vectors, [[0.6, 0, 0.8], [0, 1, 0], [0.8, 0.6, 0]])
    assert found.failures == {}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("spoiled", "code"),
    [
        (packed(0.6, 0.8), "dimension"),
        (packed(0.6, 0.0, 0.8, 0.0), "dimension"),
        # As long as it should be, and fewer bytes.
        (WHOLE[0][:14] + "==", "not-finite"),
        ("!" * 16, "not-finite"),
        (packed(math.nan, 0.0, 1.0), "not-finite"),
        ([0.6, 0.0], "dimension"),
    ],
)
def test_one_vector_that_cannot_be_decoded_with_the_others_fails_alone(place, spoiled, code):
    sent = [*WHOLE[:place], spoiled, *WHOLE[place + 1 :]]
    found = decoded(decode_body(orjson.dumps(body_of(*enumerate(sent)))).data, THREE)
    assert {row: error.code for row, error in found.failures.items()} == {place: code}
    good = [row for row in range(3) if row != place]
    expected = np.array([[0.6, 0, 0.8], [0, 1, 0], [0.8, 0.6, 0]])[good]
    assert np.allclose(found.vectors[good], expected)


@pytest.mark.parametrize(
    ("embedding", "code"),
    [
        (packed(math.nan, 1.0), "not-finite"),
        (packed(math.inf, 1.0), "not-finite"),
        (packed(0.0, 0.0), "zero-vector"),
        (packed(1.0, 1.0), "not-normalised"),
        (packed(1.0), "dimension"),
        (packed(0.6, 0.8, 0.0), "dimension"),
        ([0.6, None], "not-finite"),
        (None, "not-finite"),
        ("not base64!", "not-finite"),
        ("AAAA", "not-finite"),
        ([[0.6, 0.8]], "dimension"),
        ([0.6, {}], "not-finite"),
        ([0.6, "x"], "not-finite"),
        ({}, "not-finite"),
    ],
)
def test_an_unusable_vector_fails_alone(embedding, code):
    line = row("a", body_of((1, embedding), (0, packed(0.6, 0.8))))
    outcomes = {outcome.index: outcome for outcome in outcomes_of([line], RECIPE)}
    assert outcomes[1].failure.code == code
    assert outcomes[1].vector is None
    assert np.allclose(outcomes[0].vector, [0.6, 0.8])
    assert sum(outcome.tokens for outcome in outcomes.values()) == 5


def test_a_nan_that_json_does_not_have_fails_its_row_alone():
    line = row("a", body_of((0, [0.5, 0.5]), (1, [0.6, 0.8]))).replace(b"[0.5,0.5]", b"[NaN,1.0]")
    outcomes = list(outcomes_of([line], RECIPE))
    assert [outcome.failure and outcome.failure.code for outcome in outcomes] == [
        "not-finite",
        None,
    ]


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [
        (b"{", "retryable", "malformed-line"),
        (b"[]", "retryable", "malformed-line"),
        (orjson.dumps({"custom_id": "a"}), "retryable", "no-response"),
        (row("a", {"error": {"message": "no"}}), "retryable", "malformed-body"),
        (row("a", body_of()), "retryable", "no-vectors"),
        (row("a", body_of((None, [0.6, 0.8]))), "retryable", "malformed-body"),
        (row("a", body_of((0, [0.6, 0.8])), error={"code": "x"}), "retryable", "contradictory"),
        (row("a", "<html>", status=502), "retryable", "http-502"),
        (row("a", None, status=500), "retryable", "http-500"),
        (row("a", {"error": {"code": "bad"}}, status=400), "permanent", "bad"),
        (row("a", {"error": {"code": "rate_limit"}}, status=429), "retryable", "rate_limit"),
        (row("a", {"error": {}}, status=401), "retryable", "http-401"),
        (
            orjson.dumps({"custom_id": "a", "response": None, "error": {"code": "batch_expired"}}),
            "expired",
            "batch_expired",
        ),
        (
            orjson.dumps({"custom_id": "a", "response": None, "error": {"code": "other"}}),
            "retryable",
            "other",
        ),
    ],
)
def test_a_failed_row_is_sorted_by_whose_fault_it_is(line, kind, code):
    (outcome,) = outcomes_of([line], RECIPE)
    assert (outcome.failure.kind, outcome.failure.code) == (kind, code)
    assert outcome.index is None
