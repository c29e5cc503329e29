"""The engine of all embedders behind a server, over an endpoint that answers by word of mouth."""

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from embedmill.budget_keeper import LocalKeeper
from embedmill.embedders.endpoint import Answer
from embedmill.embedders.remote import RemoteEmbedder
from embedmill.embedders.request_limits import LearnedLimits, RequestLimits
from embedmill.errors import PermanentError, RefusedError, StopRunError
from embedmill.rate_budget import Limits
from embedmill.rate_limiter import Holder, RateLimiter
from embedmill.recipe import EmbeddingRecipe

RECIPE = EmbeddingRecipe("some", "m", "r", 1, "float32", False, "", "", 100, "dot")
TEXTS = [str(number) for number in range(6)]


class Reply:
    def __init__(self, read):
        self.read = read


class Endpoint:
    """The vector of a text is its number."""

    def __init__(self, trouble=lambda texts: None):
        self.asked = []
        self.third = threading.Event()
        self.trouble = trouble

    def request(self, texts, role):
        return partial(self.ask, texts)

    def ask(self, texts):
        self.asked.append(list(texts))
        if len(self.asked) == 3:
            self.third.set()
        self.trouble(texts)
        return Reply(lambda: b"")

    def answer(self, reply, texts):
        reply.read()
        vectors = np.array([[float(text)] for text in texts], np.float32)
        return Answer(vectors, {}, len(texts))

    def close(self):
        pass


@pytest.fixture
def embedder_of():
    made = []

    def make(endpoint, under_way, limiter=None):
        limiter = limiter or RateLimiter(LocalKeeper(Limits()), Limits(), Holder())
        limits = RequestLimits(texts=1, tokens=1000, tokenizer="estimate", under_way=under_way)
        made.append(RemoteEmbedder(endpoint, RECIPE, limits, limiter))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_reply_that_is_being_read_keeps_no_request_waiting(embedder_of):
    endpoint = Endpoint()
    answer = endpoint.answer

    def patient(reply, texts):
        # The first two replies are read when a third request was sent.
        assert endpoint.third.wait(10)
        return answer(reply, texts)

    endpoint.answer = patient
    embedded = embedder_of(endpoint, 2).embed(TEXTS, "document")
    assert embedded.vectors[:, 0].tolist() == [float(text) for text in TEXTS]
    assert embedded.token_count == len(TEXTS)


def test_one_at_a_time_is_one_after_the_other(embedder_of):
    endpoint = Endpoint()
    embedder_of(endpoint, 1).embed(TEXTS, "document")
    assert endpoint.asked == [[text] for text in TEXTS]


@pytest.mark.parametrize("under_way", [1, 3])
def test_of_several_failures_the_one_that_ends_the_run_is_told(embedder_of, under_way):
    both = threading.Barrier(2)

    def trouble(texts):
        if texts == ["0"] and under_way > 1:
            both.wait(10)
            raise RefusedError("of less weight")
        if texts == ["1"]:
            if under_way > 1:
                both.wait(10)
            raise StopRunError("no money")

    endpoint = Endpoint(trouble)
    with pytest.raises(StopRunError):
        embedder_of(endpoint, under_way).embed(TEXTS, "document")


def test_refused_texts_are_failures_of_their_own_rows_whoever_asked_for_them(embedder_of):
    def trouble(texts):
        if set(texts) & {"1", "4"}:
            raise PermanentError("refused", code="refused")

    embedded = embedder_of(Endpoint(trouble), 4).embed(TEXTS, "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {
        1: "refused",
        4: "refused",
    }
    assert np.isnan(embedded.vectors[[1, 4], 0]).all()
    assert embedded.vectors[[0, 2, 3, 5], 0].tolist() == [0.0, 2.0, 3.0, 5.0]


@pytest.fixture
def at_a_time():
    """Embeds several lists of texts at a time, each in a thread that begins after its elders."""
    with ThreadPoolExecutor() as threads:

        def begin(embedder, texts, begun):
            future = threads.submit(embedder.embed, texts, "document")
            assert begun.wait(10)
            return future

        yield begin


class Signals(Endpoint):
    """An endpoint that says when a text was asked for, and whose replies wait for another text."""

    def __init__(self, waits, trouble=lambda texts: None):
        super().__init__(trouble)
        self.waits = waits
        self.asked_for = defaultdict(threading.Event)
        for text in waits.values():
            self.asked_for[text].clear()

    def ask(self, texts):
        self.asked_for[texts[0]].set()
        if texts[0] in self.waits:
            assert self.asked_for[self.waits[texts[0]]].wait(10), self.asked
        return super().ask(texts)


def alone():
    """Trouble for requests of which two are under way at a time."""
    under_way = threading.Lock()

    def trouble(texts):
        assert under_way.acquire(blocking=False), texts
        time.sleep(0)
        under_way.release()

    return trouble


def rows_of(future):
    return future.result(10).vectors[:, 0].tolist()


@pytest.mark.parametrize("under_way", [2, 3])
def test_a_call_sends_while_the_last_replies_of_the_one_before_it_are_waited_for(
    embedder_of, at_a_time, under_way
):
    # The last reply of the first call begins when the second call has sent its last request.
    endpoint = Signals({"5": "13"})
    embedder = embedder_of(endpoint, under_way)
    first = at_a_time(embedder, TEXTS, endpoint.asked_for["0"])
    second = at_a_time(embedder, ["10", "11", "12", "13"], endpoint.asked_for["13"])
    assert rows_of(first) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert rows_of(second) == [10.0, 11.0, 12.0, 13.0]


def test_the_younger_call_sends_nothing_before_the_elder_has_sent_all(embedder_of, at_a_time):
    # Neither of the first two replies begins before the other call has been made.
    endpoint = Signals({})
    made = threading.Event()
    ask = endpoint.ask

    def held(texts):
        assert made.wait(10)
        return ask(texts)

    endpoint.ask = held
    embedder = embedder_of(endpoint, 2)
    elder = [str(number) for number in range(20)]
    limiter = embedder._limiter
    turns = [threading.Event(), threading.Event()]
    turn = limiter.turn
    counted = iter(turns)

    def told(*arguments):
        next(counted).set()
        return turn(*arguments)

    limiter.turn = told
    first = at_a_time(embedder, elder, turns[0])
    while not embedder._sending.locked():
        pass
    second = at_a_time(embedder, ["30", "31"], turns[1])
    made.set()
    assert rows_of(first) == [float(text) for text in elder]
    assert rows_of(second) == [30.0, 31.0]
    order = [texts[0] for texts in endpoint.asked]
    # Two are under way at a time: they may overtake each other, but no more.
    assert set(order[-4:]) >= {"30", "31"}


def test_one_request_at_a_time_it_is_whoever_calls(embedder_of, at_a_time):
    endpoint = Signals({}, alone())
    embedder = embedder_of(endpoint, 1)
    calls = [at_a_time(embedder, TEXTS, endpoint.asked_for["0"]) for _ in range(3)]
    assert [rows_of(call) for call in calls] == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]] * 3
    assert endpoint.asked == [[text] for text in TEXTS] * 3


@pytest.mark.parametrize("under_way", [1, 2])
def test_a_call_that_fails_takes_nothing_from_the_one_beside_it(embedder_of, at_a_time, under_way):
    def trouble(texts):
        if texts[0] in {"3", "4"}:
            raise StopRunError("no money")

    endpoint = Signals({}, trouble)
    embedder = embedder_of(endpoint, under_way)
    # More failures than there are threads: each gives back what it had.
    for _ in range(8):
        failing = at_a_time(embedder, TEXTS, endpoint.asked_for["0"])
        other = at_a_time(embedder, ["10", "11", "12"], endpoint.asked_for["10"])
        assert rows_of(other) == [10.0, 11.0, 12.0]
        with pytest.raises(StopRunError):
            failing.result(10)


def test_calls_at_a_time_share_the_rate_budget(embedder_of, at_a_time):
    limits = Limits(concurrent=1)
    endpoint = Signals({}, alone())
    keeper = LocalKeeper(limits)
    embedder = embedder_of(endpoint, 3, RateLimiter(keeper, limits, Holder()))
    calls = [
        at_a_time(embedder, [text, str(int(text) + 1)], endpoint.asked_for[text])
        for text in ("0", "2", "4")
    ]
    assert [rows_of(call) for call in calls] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert embedder._limiter.take_use().requests == 6


def test_limits_below_a_refused_request_lower_what_it_came_nearer_to():
    limits = RequestLimits(texts=512, tokens=250_000, tokenizer="estimate")
    assert limits.below(130, 650) == replace(limits, texts=65)
    assert limits.below(8, 240_000) == replace(limits, tokens=120_000)
    assert limits.below(2, 20) == replace(limits, texts=1)


def asked(learned, count, takes):
    """Full requests, each sent in halves where it is refused; how many were."""
    refused = 0
    for _ in range(count):
        texts = learned.next().texts
        if takes(texts):
            learned.taken(texts, 0)
            continue
        refused += 1
        learned.refused(texts, 0)
    return refused


def test_a_server_that_always_takes_less_than_it_states_refuses_few_requests():
    learned = LearnedLimits(RequestLimits(512, 250_000, "estimate"))
    assert asked(learned, 100_000, lambda texts: texts <= 100) <= 3 + 13
    assert learned.next().texts == 64


def test_a_refusal_of_the_moment_makes_no_request_smaller_for_long():
    learned = LearnedLimits(RequestLimits(512, 250_000, "estimate"))
    assert learned.refused(512, 1_000)
    assert learned.refused(256, 500)
    assert asked(learned, 16 + 1 + 16 + 1, lambda texts: True) == 0
    assert learned.next() == RequestLimits(512, 250_000, "estimate")


def test_a_larger_request_that_is_taken_says_nothing_of_what_it_did_not_exceed():
    learned = LearnedLimits(RequestLimits(128, 8_000, "estimate"))
    learned.refused(100, 7_000)
    learned.refused(128, 3_000)
    learned.taken(90, 2_000)
    assert learned.next() == RequestLimits(90, 3_500, "estimate")


def test_requests_under_way_that_are_refused_for_what_is_known_teach_nothing():
    learned = LearnedLimits(RequestLimits(512, 250_000, "estimate"))
    assert [learned.refused(512, 1_000) for _ in range(3)] == [True, False, False]
    assert learned.next().texts == 256


def test_small_requests_say_nothing_of_what_a_server_takes():
    learned = LearnedLimits(RequestLimits(512, 250_000, "estimate"))
    learned.refused(512, 1_000)
    for _ in range(100):
        learned.taken(10, 20)
    assert learned.next().texts == 256
