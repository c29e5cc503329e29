"""The realtime embedder through the real SDK against the fake server."""

import numpy as np
import pytest

from embedmill.errors import RateLimitedError, StopRunError, TransientError
from embedmill.openai_settings import OpenAIEmbedderSettings
from embedmill.openai_tokens import estimated_tokens
from embedmill.testing.embedder_contract import CHECKS
from embedmill.testing.fake_vectors import vectors_for
from embedmill.testing.openai_server import Fault

MODEL = "text-embedding-3-small"
TEXTS = [f"text number {number}" for number in range(10)]


def expected(texts, dimension=16):
    return vectors_for(texts, MODEL, dimension)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("encoding_format", ["base64", "float"])
def test_it_keeps_the_contract_of_an_embedder(rig, check, encoding_format):
    check(rig().embedder(dimensions=256, encoding_format=encoding_format))


@pytest.mark.parametrize("base64", [True, False], ids=["base64", "lists-all-the-same"])
def test_each_text_has_its_own_vector(rig, base64):
    embedded = rig(base64=base64).embedder().embed(TEXTS, "document")
    assert np.array_equal(embedded.vectors, expected(TEXTS))
    assert embedded.token_count == sum(rig_tokens(TEXTS))


def test_vectors_stay_when_the_next_reply_is_read(rig):
    embedder = rig().embedder(dimensions=1536)
    other = [f"another {text}" for text in TEXTS]
    first = embedder.embed(TEXTS, "document")
    second = embedder.embed(other, "document")
    assert np.array_equal(first.vectors, expected(TEXTS, 1536))
    assert np.array_equal(second.vectors, expected(other, 1536))


def rig_tokens(texts):
    return [estimated_tokens(text) for text in texts]


def test_the_order_of_the_reply_does_not_matter(rig):
    rig = rig(Fault(at="embeddings", do="shuffled-reply"))
    embedded = rig.embedder().embed(TEXTS, "document")
    assert np.array_equal(embedded.vectors, expected(TEXTS))


def test_the_full_dimension_is_not_asked_for(rig):
    rig = rig()
    embedded = rig.embedder(dimensions=1536).embed(TEXTS[:2], "document")
    assert embedded.vectors.shape == (2, 1536)
    # A server that refuses to be asked, as older models do.
    older = rig.embedder(model="older", dimensions=1536).embed(TEXTS[:2], "document")
    assert older.vectors.shape == (2, 1536)


def test_requests_are_filled_up_to_either_limit(rig):
    rig = rig()
    rig.embedder(inputs_per_request=4).embed(TEXTS, "document")
    assert rig.server.posts("/embeddings") == 3
    tokens = rig_tokens(TEXTS)
    rig.embedder(tokens_per_request=2 * max(tokens)).embed(TEXTS, "document")
    assert rig.server.posts("/embeddings") == 3 + 5


def test_blank_texts_are_never_sent(rig):
    rig = rig()
    embedded = rig.embedder().embed(["", " \n", "\u2003"], "document")
    assert {error.code for error in embedded.failures.values()} == {"blank"}
    assert rig.server.posts("/embeddings") == 0


def test_half_a_character_fails_alone(rig):
    embedded = rig().embedder().embed(["fine", "half \ud800", "fine too"], "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {1: "encoding"}
    assert np.isfinite(embedded.vectors[[0, 2]]).all()


def test_a_refused_text_is_found_by_halving_and_its_neighbours_are_charged_for_once(rig):
    rig = rig(refused_words=("poison",))
    texts = [*TEXTS, "some poison", *[f"more {number}" for number in range(20)]]
    embedder = rig.embedder()
    embedder.embed(["the first text"], "document")
    embedded = embedder.embed(texts, "document")
    assert list(embedded.failures) == [10]
    good = [row for row in range(len(texts)) if row != 10]
    assert np.array_equal(embedded.vectors[good], expected([texts[row] for row in good]))
    assert np.isnan(embedded.vectors[10]).all()
    assert rig.server.bill.more_than_once() == 0
    assert rig.server.bill.texts == len(good) + 1
    assert rig.server.posts("/embeddings") <= 2 * len(texts).bit_length() + 2


def test_a_request_with_too_many_tokens_by_the_servers_count_is_halved(rig):
    rig = rig(count_tokens=lambda text: 7_000)
    embedded = rig.embedder().embed([f"text {number}" for number in range(100)], "document")
    assert not embedded.failures
    assert embedded.token_count == rig.server.bill.tokens == 707_000
    # 100 and 50 are refused, 25 fit; and one to see whether any text is taken.
    assert rig.server.posts("/embeddings") == 1 + 2 + 4 + 1
    assert rig.server.bill.more_than_once() == 0


def test_a_text_that_is_too_long_by_the_servers_count_fails_alone(rig):
    rig = rig(count_tokens=lambda text: 9_000 if "long" in text else 5)
    embedded = rig.embedder().embed(["short", "long", "brief"], "document")
    assert list(embedded.failures) == [1]
    assert "8192" in str(embedded.failures[1])


@pytest.mark.parametrize(
    ("header", "value", "slept"),
    [
        ("retry-after", "7", [7.0]),
        ("retry-after-ms", "2500", [2.5]),
        ("retry-after", "0", [0.25]),
        ("retry-after", "", [0.25]),
        ("retry-after", "121", [121.0]),
    ],
)
def test_a_rate_limit_is_waited_out_as_the_server_says(rig, header, value, slept):
    rig = rig(Fault(at="embeddings", do="rate-limit", header=header, value=value))
    embedded = rig.embedder().embed(TEXTS, "document")
    assert not embedded.failures
    assert rig.slept == slept


def test_without_a_word_of_the_server_pauses_double(rig):
    rig = rig(Fault(at="embeddings", do="rate-limit", times=9))
    rig.embedder().embed(TEXTS, "document")
    assert rig.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.parametrize("value", ["0", "100", "601"])
def test_patience_has_an_end(rig, value):
    rig = rig(Fault(at="embeddings", do="rate-limit", value=value, times=0))
    with pytest.raises(RateLimitedError) as limited:
        rig.embedder().embed(TEXTS, "document")
    assert limited.value.retry_after == float(value)
    assert sum(rig.slept) <= 600


@pytest.mark.parametrize(
    "deed",
    ["error", "html-502", "html-200", "drop", "short-reply", "doubled-index-reply", "empty-reply"],
)
def test_a_passing_trouble_is_gone_after_a_second(rig, deed):
    rig = rig(Fault(at="embeddings", do=deed))
    embedded = rig.embedder().embed(TEXTS, "document")
    assert np.array_equal(embedded.vectors, expected(TEXTS))
    assert rig.slept == [1.0]


def test_what_was_charged_for_is_not_lost_to_a_trouble_of_the_next_request(rig):
    rig = rig(Fault(at="embeddings", do="error", call=2, times=2))
    embedded = rig.embedder(inputs_per_request=5).embed(TEXTS, "document")
    assert not embedded.failures
    assert rig.server.bill.more_than_once() == 0


def test_a_trouble_that_stays_is_passed_on(rig):
    rig = rig(Fault(at="embeddings", do="error", times=0))
    with pytest.raises(TransientError):
        rig.embedder().embed(TEXTS, "document")
    assert rig.slept == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("deed", "code"), [("nan-reply", "not-finite"), ("narrow-reply", "dimension")]
)
@pytest.mark.parametrize("encoding_format", ["base64", "float"])
def test_an_unusable_vector_fails_alone(rig, deed, code, encoding_format):
    rig = rig(Fault(at="embeddings", do=deed))
    embedded = rig.embedder(encoding_format=encoding_format).embed(TEXTS, "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {0: code}
    assert np.array_equal(embedded.vectors[1:], expected(TEXTS[1:]))


@pytest.mark.parametrize(
    ("deed", "code"), [("no-money", "insufficient-quota"), ("bad-key", "credentials")]
)
def test_no_money_and_a_wrong_key_stop_the_run_at_once(rig, deed, code):
    rig = rig(Fault(at="embeddings", do=deed))
    with pytest.raises(StopRunError) as stopped:
        rig.embedder().embed(TEXTS, "document")
    assert stopped.value.code == code
    assert rig.server.posts("/embeddings") == 1


def test_settings_that_the_server_refuses_stop_the_run_and_blame_no_text(rig):
    rig = rig()
    for more in (
        {"model": "no-such-model", "dimensions": 5},
        {"base_url": rig.server.base_url + "/x"},
    ):
        with pytest.raises(StopRunError) as stopped:
            rig.embedder(**more).embed(TEXTS, "document")
        assert stopped.value.code == "embedder-settings"


def test_a_server_that_refuses_every_text_is_found_out_by_the_second_request(rig):
    rig = rig(refused_words=("t",))
    with pytest.raises(StopRunError) as stopped:
        rig.embedder().embed(TEXTS, "document")
    assert stopped.value.code == "embedder-settings"
    assert rig.server.posts("/embeddings") == 2


def test_requests_are_spaced_out_under_the_rates(rig):
    rig = rig()
    embedder = rig.embedder(inputs_per_request=2, rate_budget={"requests_per_minute": 60})
    embedder.embed(TEXTS, "document")
    # Two are far enough ahead to be permitted at once; requests take no time in this rig.
    assert rig.clock() == pytest.approx(4.0)


def test_the_key_comes_from_the_environment(rig, monkeypatch):
    rig = rig(api_key="sk-right")
    with pytest.raises(StopRunError):
        rig.embedder().embed(TEXTS, "document")
    monkeypatch.setenv("FAKE_OPENAI_KEY", "sk-right")
    assert not rig.embedder().embed(TEXTS, "document").failures


@pytest.mark.parametrize(
    "values",
    [
        {"model": "text-embedding-3-small", "dimensions": 1537},
        {"model": "text-embedding-ada-002", "dimensions": 512},
        {"model": "anything"},
        {"api_key": "sk-abcdefghij0123456789"},
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_sent(values):
    with pytest.raises(ValueError, match=r"dimensions|pattern"):
        OpenAIEmbedderSettings.model_validate({"kind": "openai", **values})
