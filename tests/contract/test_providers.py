"""What Voyage, Cohere and servers that speak OpenAI's language have of their own."""

import json
import urllib.error
import urllib.request

import numpy as np
import pytest
from remote_rig import CohereRig, CompatibleRig, VoyageRig, close_to

from embedmill.cohere_settings import CohereEmbedderSettings, cohere_recipe
from embedmill.compatible_settings import CompatibleEmbedderSettings
from embedmill.testing.fake_vectors import vectors_for
from embedmill.vector_encoding import normalised
from embedmill.voyage_models import VOYAGE_MODELS
from embedmill.voyage_settings import VoyageEmbedderSettings, voyage_recipe

TEXTS = [f"text number {number}" for number in range(10)]
KINDS = ("float", "int8", "uint8", "binary", "ubinary")


@pytest.fixture
def opened(monkeypatch):
    """Serves a rig until the end of the test."""
    monkeypatch.setenv("FAKE_REMOTE_KEY", "sk-of-the-fake-server")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    rigs = []

    def open_one(rig):
        rig.server.__enter__()
        rigs.append(rig)
        return rig

    yield open_one
    for rig in rigs:
        rig.close()


def ask(rig, body, key="any"):
    request = urllib.request.Request(
        rig.server.url + rig.path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}"} if key else {},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize("rig", [VoyageRig, CohereRig])
@pytest.mark.parametrize("kind", KINDS)
def test_coarser_vectors_become_floats_of_norm_1_and_stay_near(opened, rig, kind):
    rig = opened(rig())
    embedder = rig.embedder(vector_type=kind)
    assert embedder.recipe.dtype == ("float32" if kind == "float" else kind)
    vectors = embedder.embed(TEXTS, "document").vectors
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    near = {"float": 0.999, "int8": 0.95, "uint8": 0.95, "binary": 0.25, "ubinary": 0.25}
    assert np.sum(vectors * rig.expected(TEXTS), axis=1).min() > near[kind]


def test_cohere_can_be_asked_for_base64_and_every_vector_is_given_norm_1(opened):
    rig = opened(CohereRig())
    embedded = rig.embedder(base64=True).embed(TEXTS, "document")
    assert close_to(embedded.vectors, rig.expected(TEXTS))
    # The fake's third generation sends norms of 1.25.
    old = rig.embedder(model="embed-english-v3.0", dimensions=None).embed(TEXTS, "query")
    expected = vectors_for(TEXTS, "embed-english-v3.0", 1024, "search_query")
    assert close_to(old.vectors, normalised(expected))


def test_cohere_never_sees_more_than_96_texts_in_a_request(opened):
    rig = opened(CohereRig())
    assert not rig.embedder().embed([f"text {n}" for n in range(200)], "document").failures
    assert rig.posts() == 3
    status, reply = ask(
        rig,
        {
            "model": "embed-v4.0",
            "texts": ["a"] * 97,
            "input_type": "search_document",
            "embedding_types": ["float"],
        },
    )
    assert (status, "96" in reply["message"], "97" in reply["message"]) == (400, True, True)


def test_an_invalid_token_of_cohere_stops_the_run(opened):
    rig = opened(CohereRig({"do": "bad-key", "value": "498"}))
    with pytest.raises(Exception, match="498") as stopped:
        rig.embedder().embed(TEXTS, "document")
    assert stopped.value.code == "credentials"


def test_voyage_packs_under_the_cap_of_the_model_and_halves_when_the_server_counts_more(opened):
    rig = opened(VoyageRig(count_tokens=lambda text: 3000))
    embedded = rig.embedder(model="voyage-3-large").embed(
        [f"text {n}" for n in range(100)], "document"
    )
    assert not embedded.failures
    assert rig.server.bill.more_than_once() == 0
    for model, known in VOYAGE_MODELS.items():
        settings = VoyageEmbedderSettings.model_validate({"kind": "voyage", "model": model})
        assert settings.request_tokens == int(0.9 * known.request_tokens)


def test_a_rate_limit_of_a_proxy_without_a_word_of_json_is_a_rate_limit(opened):
    rig = opened(VoyageRig({"do": "rate-limit-page", "value": "3"}))
    assert not rig.embedder().embed(TEXTS, "document").failures
    assert rig.slept == [3.0]


def test_a_text_over_the_window_is_cut_here_and_never_in_silence_there(opened):
    rig = opened(VoyageRig())
    long = "word " * 1000
    embedded = rig.embedder().embed([long + "alpha", long + "omega"], "document")
    assert (embedded.truncated, dict(embedded.failures)) == (2, {})
    # A window beyond the model's: the server refuses instead of cutting.
    too_long = "word " * 25_000
    embedded = rig.embedder(max_tokens=60_000).embed([too_long, "short"], "document")
    assert list(embedded.failures) == [0]
    assert embedded.truncated == 0


@pytest.mark.parametrize("where", ["server", "client"])
def test_shorter_vectors_have_norm_1_whoever_cuts_them(opened, where):
    rig = opened(CompatibleRig())
    model = {"model": "text-embedding-3-small", "dimensions": 100}
    embedded = rig.embedder(shorten=where, **model).embed(TEXTS, "document")
    prompted = ["passage: " + text for text in TEXTS]
    longest = vectors_for(prompted, "text-embedding-3-small", 1536)
    cut = normalised(longest[:, :100].copy())
    there = vectors_for(prompted, "text-embedding-3-small", 100)
    assert close_to(embedded.vectors, there if where == "server" else cut)
    assert np.allclose(np.linalg.norm(embedded.vectors, axis=1), 1, atol=1e-3)


def test_without_being_told_a_longer_vector_is_no_vector_of_the_recipe(opened):
    rig = opened(CompatibleRig())
    embedded = rig.embedder(dimensions=100).embed(TEXTS[:2], "document")
    assert {error.code for error in embedded.failures.values()} == {"dimension"}


def test_a_server_without_a_key_gets_none_and_azure_gets_its_own_header(opened, monkeypatch):
    rig = opened(CompatibleRig())
    for more, header in (({"server": "azure"}, "api-key"), ({}, "authorization")):
        sent = rig.embedder(**more)._endpoint._requests._headers
        assert sent[header].endswith("sk-of-the-fake-server")
    assert "authorization" not in rig.embedder(api_key=None)._endpoint._requests._headers


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"server": "azure", "api_key": None}, "api_key"),
        ({"server": "unheard-of"}, "server"),
        ({"normalised": False, "renormalise": True}, "renormalise"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_settings_of_a_server_that_cannot_work_are_refused(more, said):
    values = {
        "kind": "openai_compatible",
        "base_url": "http://127.0.0.1:1/v1",
        "model": "m",
        "dimensions": 8,
        "max_tokens": 512,
        **more,
    }
    with pytest.raises(ValueError, match=said):
        CompatibleEmbedderSettings.model_validate(values)


@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        (VoyageEmbedderSettings, {"kind": "voyage", "model": "voyage-9"}, "voyage-4-large"),
        (VoyageEmbedderSettings, {"kind": "voyage", "dimensions": 300}, "256 or 512"),
        (
            VoyageEmbedderSettings,
            {"kind": "voyage", "model": "voyage-law-2", "vector_type": "int8"},
            "floats only",
        ),
        (
            VoyageEmbedderSettings,
            {"kind": "voyage", "model": "voyage-finance-2", "mode": "batch"},
            "voyage-4-large",
        ),
        (CohereEmbedderSettings, {"kind": "cohere", "model": "embed-v9"}, "embed-v4.0"),
        (CohereEmbedderSettings, {"kind": "cohere", "dimensions": 2048}, "256 or 512"),
        (CohereEmbedderSettings, {"kind": "cohere", "base64": True, "vector_type": "int8"}, "64"),
        (CohereEmbedderSettings, {"kind": "cohere", "inputs_per_request": 97}, "96"),
    ],
)
def test_settings_of_a_model_that_cannot_work_are_refused(settings, values, said):
    with pytest.raises(ValueError, match=said):
        settings.model_validate(values)


def test_what_decides_a_vector_is_in_the_recipe_and_the_address_is_not():
    def recipe(**more):
        settings = VoyageEmbedderSettings.model_validate({"kind": "voyage", **more})
        return voyage_recipe(settings, "cosine")

    plain = recipe()
    assert (plain.document_input_type, plain.query_input_type) == ("document", "query")
    assert recipe(base_url="http://127.0.0.1:1/v1") == plain
    changes = (
        {"model": "voyage-4-lite"},
        {"dimensions": 256},
        {"vector_type": "int8"},
        {"query_input_type": "none"},
        {"revision": "2027"},
    )
    assert len({recipe(**more).fingerprint for more in changes} | {plain.fingerprint}) == 6
    cohere = CohereEmbedderSettings.model_validate({"kind": "cohere"})
    assert cohere_recipe(cohere, "cosine").input_type("query") == "search_query"


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"input": []}, 400, "empty"),
        ({"input": ["a", ""]}, 400, "empty"),
        ({"input": ["a"] * 1001}, 400, "1000"),
        ({"model": "voyage-9"}, 400, "not supported"),
        ({"input_type": "passage"}, 400, "input_type"),
        ({"output_dimension": 300}, 400, "256"),
        ({"output_dtype": "int4"}, 400, "output_dtype"),
        ({"encoding_format": "float"}, 400, "encoding_format"),
        ({"dimensions": 256}, 400, "dimensions"),
        ({"input": ["word " * 90_000], "truncation": False}, 400, "context window"),
    ],
)
def test_the_fake_voyage_refuses_what_voyage_refuses(opened, more, status, said):
    rig = opened(VoyageRig())
    got, reply = ask(rig, {"model": "voyage-4", "input": ["a"], **more})
    assert (got, list(reply)) == (status, ["detail"])
    assert said in reply["detail"]


def test_the_fake_voyage_cuts_where_it_is_let_and_says_what_it_charged(opened):
    rig = opened(VoyageRig())
    status, reply = ask(rig, {"model": "voyage-4", "input": ["word " * 90_000, "a"]})
    assert (status, reply["usage"], len(reply["data"][0]["embedding"])) == (
        200,
        {"total_tokens": 32_000 + 1},
        1024,
    )
    assert ask(rig, {"model": "voyage-4", "input": "a"}, key="")[0] == 401


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"input_type": None}, 400, "input_type"),
        ({"embedding_types": []}, 400, "embedding_types"),
        ({"texts": ["a", ""]}, 400, r"texts[1]"),
        ({"texts": []}, 400, "at least one"),
        ({"output_dimension": 2048}, 400, "output_dimension"),
        ({"model": "embed-english-v3.0", "output_dimension": 1024}, 400, "output_dimension"),
        ({"model": "embed-v9"}, 404, "not found"),
        ({"truncate": "MIDDLE"}, 400, "truncate"),
        ({"truncation": True}, 422, "truncation"),
        (
            {"model": "embed-english-v3.0", "texts": ["word " * 600], "truncate": "NONE"},
            400,
            "many",
        ),
    ],
)
def test_the_fake_cohere_refuses_what_cohere_refuses(opened, more, status, said):
    rig = opened(CohereRig())
    body = {
        "model": "embed-v4.0",
        "texts": ["a"],
        "input_type": "search_document",
        "embedding_types": ["float"],
        **more,
    }
    got, reply = ask(rig, body)
    assert got == status
    assert said in reply["message"]
