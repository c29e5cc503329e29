"""Recipes name folders on disk: their fingerprints never move, and every attribute counts."""

from dataclasses import asdict, fields, replace

import pytest

from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe, differences, fingerprint_of

CHUNKING = ChunkingRecipe(
    splitter="markdown",
    splitter_version=1,
    library="semantic-text-splitter 0.33.1",
    tokenizer="3f9a1c02d4e5",
    max_tokens=254,
    overlap=24,
    overflow="refuse",
    parser="text 1",
)
EMBEDDING = EmbeddingRecipe(
    provider="sentence_transformers",
    model="sentence-transformers/all-MiniLM-L6-v2",
    revision="c9745ed1d9f2",
    dimension=384,
    dtype="float32",
    normalise=True,
    document_prompt="",
    query_prompt="query: ",
    max_tokens=256,
    metric="cosine",
)


def test_equal_recipes_have_the_same_id_for_ever():
    assert CHUNKING.id == "markdown-254-24-c83f0a53dad6"
    assert EMBEDDING.id == "all-minilm-l6-v2-384-2e87896f830b"


def test_a_fingerprint_does_not_depend_on_the_order_of_keys():
    assert fingerprint_of({"b": 1, "a": [1.5, None, "é"]}) == "f23e5735bca9"
    assert fingerprint_of({"a": [1.5, None, "é"], "b": 1}) == "f23e5735bca9"


@pytest.mark.parametrize("recipe", [CHUNKING, EMBEDDING], ids=["chunking", "embedding"])
def test_every_attribute_changes_the_fingerprint_and_shows_as_a_difference(recipe):
    for field in fields(recipe):
        old = getattr(recipe, field.name)
        new = not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else old + "x"
        other = replace(recipe, **{field.name: new})
        assert other.fingerprint != recipe.fingerprint, field.name
        assert differences(recipe, other) == [f"{field.name}: {old!r} -> {new!r}"]


@pytest.mark.parametrize("recipe", [CHUNKING, EMBEDDING], ids=["chunking", "embedding"])
def test_a_recipe_reads_back_what_it_wrote(recipe):
    assert type(recipe).from_json(asdict(recipe)) == recipe
    assert differences(recipe, type(recipe).from_json(asdict(recipe))) == []


def test_an_id_is_a_safe_folder_name_whatever_the_model_is_called():
    for model in ("../../etc", "Ünï Côdé", "///", "a" * 300, "x/y z:w"):
        name = replace(EMBEDDING, model=model).id
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert len(name) < 80
