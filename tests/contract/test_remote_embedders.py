"""Every embedder behind a provider's server: the same promises, the same patience."""

import threading
from functools import partial

import numpy as np
import pytest
from remote_rig import RIGS, close_to

from embedmill.errors import RateLimitedError, SettingsError, StopRunError, TransientError
from embedmill.testing.embedder_contract import CHECKS
from embedmill.testing.request_rates import RateLimits

TEXTS = [f"text number {number}" for number in range(10)]


@pytest.fixture
def opened(monkeypatch):
    """Makes a rig by its name, the deeds of its server and its options; serves until the end."""
    monkeypatch.setenv("FAKE_REMOTE_KEY", "sk-of-the-fake-server")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = []

    def make(name, *deeds, **options):
        made.append(RIGS[name](*deeds, **options))
        made[-1].server.__enter__()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(params=RIGS)
def rig(request, opened):
    return partial(opened, request.param)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract_of_an_embedder(rig, check):
    check(rig().embedder(max_tokens=512))


def test_each_text_has_its_own_vector_and_its_tokens_are_counted(rig):
    rig = rig()
    for role in ("document", "query"):
        embedded = rig.embedder().embed(TEXTS, role)
        assert close_to(embedded.vectors, rig.expected(TEXTS, role))
        assert not embedded.failures
    assert rig.server.bill.tokens == 2 * embedded.token_count or rig.base.get("query_prompt")


def test_several_requests_are_under_way_at_a_time_and_each_vector_finds_its_row(rig):
    rig = rig({"do": "slow", "times": 0, "seconds": 0.05})
    texts = [f"text number {number}" for number in range(40)]
    inside, most, lock, all_inside = 0, 0, threading.Lock(), threading.Event()
    embedder = rig.embedder(inputs_per_request=3, requests_at_a_time=8)
    requests = embedder._endpoint._requests
    post = requests.post

    def counted(*arguments, **more):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == 8:
                all_inside.set()
        # Threads begin when the machine lets them: none is over before all have begun.
        assert all_inside.wait(20)
        try:
            return post(*arguments, **more)
        finally:
            with lock:
                inside -= 1

    requests.post = counted
    embedded = embedder.embed(texts, "document")
    assert close_to(embedded.vectors, rig.expected(texts))
    assert most == 8
    assert rig.posts() == 14


def test_a_failure_among_several_requests_ends_them_all_and_the_gravest_is_told(rig):
    troubles = [{"do": "error", "call": 1, "times": 3}, {"do": "bad-key", "call": 9, "times": 0}]
    rig = rig(*troubles)
    embedder = rig.embedder(inputs_per_request=1, requests_at_a_time=4)
    with pytest.raises(StopRunError):
        embedder.embed(TEXTS, "document")
    sent = rig.posts()
    with pytest.raises(StopRunError):
        embedder.embed(TEXTS[:1], "document")
    assert rig.posts() == sent + 1


def test_a_refused_text_is_found_by_halving_and_its_neighbours_are_charged_for_once(rig):
    rig = rig(refused_words=("poison",))
    texts = [*TEXTS, "some poison", *[f"more {number}" for number in range(20)]]
    embedder = rig.embedder()
    embedder.embed(["the first text"], "document")
    embedded = embedder.embed(texts, "document")
    assert list(embedded.failures) == [10]
    good = [row for row in range(len(texts)) if row != 10]
    assert close_to(embedded.vectors[good], rig.expected([texts[row] for row in good]))
    assert np.isnan(embedded.vectors[10]).all()
    assert (rig.server.bill.more_than_once(), rig.server.bill.texts) == (0, len(good) + 1)


@pytest.mark.parametrize(("limit", "most"), [("MOST_INPUTS", 7), ("MOST_TOKENS", 60)])
def test_a_request_that_is_refused_for_its_size_is_not_made_so_large_again(
    opened, monkeypatch, limit, most
):
    monkeypatch.setattr(f"embedmill.testing.openai_embeddings.{limit}", most)
    rig = opened("openai")
    answer, refused = rig.server.reply_to, []

    def noted(request):
        reply = answer(request)
        if reply.status == 400:
            refused.append(reply)
        return reply

    rig.server.reply_to = noted
    texts = [f"text number {number}" for number in range(90)]
    # The one limit that is nearer to being reached is the one that is too high.
    stated = {"inputs_per_request": 30} if limit == "MOST_INPUTS" else {"tokens_per_request": 300}
    embedder = rig.embedder(**stated)
    embedded = embedder.embed(texts, "document")
    assert not embedded.failures
    assert close_to(embedded.vectors, rig.expected(texts))
    assert rig.server.bill.more_than_once() == 0
    # The first request, and halves of it.
    had = len(refused)
    assert had <= 7
    assert not embedder.embed([f"{text} again" for text in texts], "document").failures
    # Whether more passes by now is tried once.
    assert len(refused) == had + 1


def test_blank_and_broken_texts_are_never_sent(rig):
    rig = rig()
    embedded = rig.embedder().embed(["", " \n", "half \ud800"], "document")
    assert [error.code for error in embedded.failures.values()] == ["blank", "blank", "encoding"]
    assert rig.posts() == 0


@pytest.mark.parametrize(("value", "slept"), [("7", [7.0]), ("0", [0.25]), ("", [0.25])])
def test_a_rate_limit_is_waited_out_as_the_server_says(rig, value, slept):
    rig = rig({"do": "rate-limit", "value": value})
    assert not rig.embedder().embed(TEXTS, "document").failures
    assert rig.slept == slept


@pytest.mark.parametrize("limit", ["requests", "inputs"])
def test_what_the_account_does_not_allow_is_refused_and_sent_later(rig, limit):
    rig = rig(rates=RateLimits(**{limit: 2}))
    embedder = rig.embedder(inputs_per_request=1)
    assert not embedder.embed([f"text {number}" for number in range(5)], "document").failures
    assert 120 <= sum(rig.slept) < 200
    assert rig.server.bill.texts == 5


def test_patience_has_an_end(rig):
    rig = rig({"do": "rate-limit", "value": "100", "times": 0})
    with pytest.raises(RateLimitedError):
        rig.embedder().embed(TEXTS, "document")
    assert sum(rig.slept) <= 600


@pytest.mark.parametrize(
    "deed", ["error", "html-502", "html-200", "drop", "drop-reply", "cut-reply", "short-reply"]
)
def test_a_passing_trouble_is_gone_after_a_second(rig, deed):
    rig = rig({"do": deed})
    embedded = rig.embedder().embed(TEXTS, "document")
    assert close_to(embedded.vectors, rig.expected(TEXTS))
    assert rig.slept == [1.0]


def test_silence_counts_as_a_lost_request(rig):
    rig = rig({"do": "slow", "seconds": 3600})
    assert not rig.embedder(timeout_s=1).embed(TEXTS, "document").failures
    assert rig.slept == [1.0]


def test_vectors_in_another_order_find_their_texts_or_are_not_taken(rig):
    rig = rig({"do": "shuffled-reply"})
    embedded = rig.embedder().embed(TEXTS, "document")
    assert close_to(embedded.vectors, rig.expected(TEXTS))


def test_a_trouble_that_stays_is_passed_on(rig):
    rig = rig({"do": "error", "times": 0})
    with pytest.raises(TransientError):
        rig.embedder().embed(TEXTS, "document")
    assert rig.slept == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("deed", "code"), [("nan-reply", "not-finite"), ("narrow-reply", "dimension")]
)
def test_an_unusable_vector_fails_alone(rig, deed, code):
    rig = rig({"do": deed})
    embedded = rig.embedder().embed(TEXTS, "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {0: code}
    assert close_to(embedded.vectors[1:], rig.expected(TEXTS[1:]))


@pytest.mark.parametrize(
    ("deed", "code"), [("no-money", "insufficient-quota"), ("bad-key", "credentials")]
)
def test_no_money_and_a_wrong_key_stop_the_run_at_once(rig, deed, code):
    rig = rig({"do": deed})
    with pytest.raises(StopRunError) as stopped:
        rig.embedder().embed(TEXTS, "document")
    assert stopped.value.code == code
    assert rig.posts() == 1


def test_settings_that_the_server_refuses_stop_the_run_and_blame_no_text(rig):
    rig = rig()
    unknown = {"model": "no-such-model", "dimensions": 5, "max_tokens": 512}
    for more in (unknown, {"base_url": rig.server.base_url + "/x"}):
        with pytest.raises(StopRunError) as stopped:
            rig.embedder(**more).embed(TEXTS, "document")
        assert stopped.value.code == "embedder-settings"


def test_a_server_that_refuses_every_text_is_found_out_by_the_second_request(rig):
    rig = rig(refused_words=("t",))
    with pytest.raises(StopRunError) as stopped:
        rig.embedder().embed(TEXTS, "document")
    assert stopped.value.code == "embedder-settings"
    assert rig.posts() == 2


@pytest.mark.parametrize("address", ["localhost:1", "http://[::1", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_said_to_be_none(rig, address):
    with pytest.raises((StopRunError, SettingsError), match="base_url"):
        rig().embedder(base_url=address).embed(TEXTS, "document")


def test_limits_that_the_provider_states_are_kept_without_a_refusal(opened):
    rig = opened("openai", rates=RateLimits(requests=60))
    embedder = rig.embedder(inputs_per_request=1, rate_budget={"requests_per_minute": 6000})
    assert not embedder.embed([f"text {number}" for number in range(90)], "document").failures
    assert rig.server.account.rates.refused == 0
    assert sum(rig.slept) == pytest.approx(89, abs=3)


def test_a_limit_of_texts_is_kept_without_a_refusal_and_nearly_all_of_it_is_used(opened):
    rig = opened("cohere", rates=RateLimits(inputs=200))
    embedder = rig.embedder(rate_budget={"inputs_per_minute": 200})
    assert not embedder.embed([f"text {number}" for number in range(600)], "document").failures
    rates = rig.server.account.rates
    assert rates.refused == 0
    assert [arrival.inputs for arrival in rates.arrivals] == [66] * 9 + [6]
    assert sum(rig.slept) == pytest.approx(594 * 60 / 200, abs=3)


def test_a_request_with_more_tokens_than_the_account_has_in_a_minute_is_sent_in_parts(opened):
    rig = opened("openai", rates=RateLimits(tokens=100))
    texts = [f"{number} " + "thirty tokens " * 6 for number in range(8)]
    embedded = rig.embedder().embed(texts, "document")
    assert not embedded.failures
    assert close_to(embedded.vectors, rig.expected(texts))
    assert (rig.server.bill.texts, rig.server.bill.more_than_once()) == (8, 0)
    assert rig.server.account.rates.refused == 1


def test_the_key_comes_from_the_environment(rig, monkeypatch):
    rig = rig(api_key="sk-right")
    with pytest.raises(StopRunError):
        rig.embedder().embed(TEXTS, "document")
    monkeypatch.setenv("FAKE_REMOTE_KEY", "sk-right")
    assert not rig.embedder().embed(TEXTS, "document").failures
