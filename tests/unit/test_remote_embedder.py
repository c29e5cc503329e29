"""The engine of all embedders behind a server, over an endpoint that answers by word of mouth."""

import threading
from functools import partial

import numpy as np
import pytest

from embedmill.budget_keeper import LocalKeeper
from embedmill.embedders.endpoint import Answer
from embedmill.embedders.remote import RemoteEmbedder, RequestLimits
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

    def make(endpoint, under_way):
        limiter = RateLimiter(LocalKeeper(Limits()), Limits(), Holder())
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
