import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embedmill.embedders.build import build_embedder, embedding_recipe, token_window
from embedmill.embedders.word_tokenizer import WordTokenizer, word_count, words_of
from embedmill.settings import HashingEmbedderSettings


def hashing(**settings):
    given = HashingEmbedderSettings(kind="hashing", **settings)
    return build_embedder(given, embedding_recipe(given, "cosine"))


PROGRAM = """
from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.settings import HashingEmbedderSettings

settings = HashingEmbedderSettings(kind="hashing", dimension=16)
embedder = build_embedder(settings, embedding_recipe(settings, "cosine"))
print(embedder.embed(["Alpha beta", "!!"], "document").vectors.tolist())
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_vectors_are_the_same_in_every_process(seed):
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    expected = hashing(dimension=16).embed(["Alpha beta", "!!"], "document").vectors.tolist()
    assert printed.strip() == str(expected)


def test_vectors_are_pinned():
    [vector] = hashing(dimension=4).embed(["alpha beta gamma"], "document").vectors
    part = 3**-0.5
    assert vector.tolist() == pytest.approx([0.0, part, -part, -part])


def test_case_and_order_do_not_matter_but_words_do():
    embedded = hashing().embed(["Red Fox", "fox red", "blue whale"], "document").vectors
    assert embedded[0] @ embedded[1] == pytest.approx(1.0)
    assert abs(embedded[0] @ embedded[2]) < 0.9


def test_texts_that_share_words_are_near():
    texts = ["the quick brown fox jumps", "the quick brown dog jumps", "quarterly tax report due"]
    one, near, far = hashing(dimension=256).embed(texts, "document").vectors
    assert one @ near > 0.7
    assert one @ far < 0.3


def test_a_text_without_words_has_a_vector_of_its_own():
    embedded = hashing(dimension=512).embed(["!!!", "???", "\u2192"], "document")
    assert not embedded.failures
    assert len({vector.tobytes() for vector in embedded.vectors}) == 3


def test_no_text_has_the_zero_vector():
    words = [f"w{number}" for number in range(60)]
    texts = [f"{one} {other}" for one in words for other in words if one != other]
    # In two buckets many pairs cancel out.
    embedded = hashing(dimension=2).embed(texts, "document")
    assert not embedded.failures
    assert np.abs(np.linalg.norm(embedded.vectors, axis=1) - 1).max() < 1e-6


def test_words_beyond_the_window_have_no_influence():
    embedded = hashing(max_tokens=3).embed(["a b c d", "a b c e", "a b", ""], "document")
    assert np.array_equal(embedded.vectors[0], embedded.vectors[1])
    assert (embedded.token_count, embedded.truncated) == (8, 2)


def test_prompts_are_words_of_the_text():
    embedder = hashing(document_prompt="passage: ", query_prompt="query: ")
    [document] = embedder.embed(["fox"], "document").vectors
    [query] = embedder.embed(["fox"], "query").vectors
    plain = hashing().embed(["passage: fox", "query: fox"], "document").vectors
    assert np.array_equal(document, plain[0])
    assert np.array_equal(query, plain[1])


def test_many_rows_of_large_dimension_are_computed_in_slices():
    texts = [f"word{number}" for number in range(200)]
    embedder = hashing(dimension=65_536)
    embedded = embedder.embed(texts, "document").vectors
    assert np.array_equal(embedded[150], embedder.embed(texts[150:151], "document").vectors[0])


def test_many_texts_are_embedded_as_each_alone(monkeypatch):
    texts = ["alpha beta", "", "gamma delta epsilon", " ", "alpha", "beta gamma delta"]
    embedder = hashing(dimension=32, max_tokens=2)
    whole = embedder.embed(texts, "document")
    monkeypatch.setattr("embedmill.embedders.hashing._AT_ONCE", 2)
    parted = embedder.embed(texts, "document")
    np.testing.assert_array_equal(parted.vectors, whole.vectors)
    assert sorted(parted.failures) == sorted(whole.failures) == [1, 3]
    assert (parted.token_count, parted.truncated) == (whole.token_count, whole.truncated) == (7, 2)
    assert embedder.embed([], "document").vectors.shape == (0, 32)


def test_the_counter_counts_what_the_embedder_reads():
    settings = HashingEmbedderSettings(kind="hashing", document_prompt="about: ")
    window = token_window(settings)
    texts = ["", "one", "Two words!", "x" * 40, "a_b-c", "e\u0301"]
    embedder = build_embedder(settings, embedding_recipe(settings, "dot"))
    for text in texts[1:]:
        assert window.count([text]) == [embedder.embed([text], "document").token_count]
    assert window.overhead == 2
    assert window.counter.count(texts) == [0, 1, 3, 3, 3, 2]


def test_the_recipe_has_all_settings():
    settings = HashingEmbedderSettings(
        kind="hashing", dimension=32, max_tokens=9, query_prompt="q ", document_prompt="d "
    )
    recipe = embedding_recipe(settings, "euclid")
    assert (recipe.provider, recipe.dimension, recipe.max_tokens) == ("hashing", 32, 9)
    assert (recipe.document_prompt, recipe.query_prompt, recipe.metric) == ("d ", "q ", "euclid")
    assert recipe.id.startswith("hashing-32-")


@given(
    st.text(
        st.sampled_from("ab_.,-1\u00e9\u4e2d \t\n\x1c\x85\u00a0\u2003\u200b\u2028")
        | st.characters()
    )
)
def test_words_are_made_piece_by_piece_as_from_the_whole_text(text):
    whole = re.findall(r"\w{1,16}|[^\w\s]", text)
    assert words_of(text) == whole
    assert word_count(text) == len(whole)


@given(
    st.lists(
        st.text(st.sampled_from("a_1.-\x00\x1c\x1f \t\n"), max_size=60)
        | st.text(st.sampled_from("ab_1.- \n\x85\u00e9\u4e2d\u2028\ud800"), max_size=60)
        | st.text(),
        max_size=8,
    )
)
@example(["a" * 16, "a" * 17, "_" * 33 + "!" * 3, "", " ", "\u00e9" * 17])
@example([])
def test_texts_have_the_same_counts_together_and_alone(texts):
    counter = WordTokenizer()
    assert counter.count_together(texts) == counter.count(texts)


@given(st.lists(st.text(st.sampled_from("abc!. \t\ud800\u4e2d")), max_size=8))
def test_texts_have_the_same_vectors_together_and_alone(texts):
    embedder = hashing(dimension=16, max_tokens=5)
    together = embedder.embed(texts, "document")
    alone = [embedder.embed([text], "document") for text in texts]
    for row, one in enumerate(alone):
        assert np.array_equal(together.vectors[row], one.vectors[0], equal_nan=True)
    assert together.token_count == sum(one.token_count for one in alone)
    assert together.truncated == sum(one.truncated for one in alone)
