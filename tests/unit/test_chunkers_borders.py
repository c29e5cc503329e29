"""What the splitter of our own prefers, and what holds with any tokenizer."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from embedmill.chunkers.build import build_chunker, chunking_recipe
from embedmill.chunkers.headings import sections_of
from embedmill.chunkers.lines import lines_of
from embedmill.chunkers.markdown_lines import markdown_lines
from embedmill.chunkers.token_borders import TokenBorderChunker
from embedmill.chunkers.words import WordReader
from embedmill.embedders.model_tokenizer import JsonTokenizer
from embedmill.embedders.word_tokenizer import WordTokenizer
from embedmill.openai_tokens import TokenEstimate
from embedmill.parser import ParsedDocument
from embedmill.settings import HashingEmbedderSettings, SplittingChunkerSettings
from embedmill.tokenizer import TokenWindow
from embedmill.word_measures import word_measure

HASHING = HashingEmbedderSettings(kind="hashing", max_tokens=10_000)
SENTENCE = "Rivers carry sand and stones to the sea over many years. "
WRAPPED = (
    "The quick brown fox jumps over the lazy dog and runs into\n"
    "the wood. Nobody has seen it since, although the hunters\n"
    "looked for it in every corner of the wood for seven days.\n"
)


def chunks_of(text, kind="markdown", **more):
    settings = SplittingChunkerSettings(kind=kind, **more)
    form = kind if kind != "auto" else "text"
    [chunks] = build_chunker(settings, HASHING, "p").chunk([ParsedDocument(text, format=form)])
    return chunks


def texts_of(text, kind="markdown", **more):
    return [chunk.text for chunk in chunks_of(text, kind, **more)]


def test_a_section_begins_a_chunk_rather_than_a_paragraph():
    section = "## Title\n\n" + (SENTENCE * 3 + "\n\n") * 2
    assert all(text.startswith("## ") for text in texts_of(section * 8, max_tokens=80))


def test_a_heading_stays_with_its_text():
    text = "".join(f"# Title {n}\n\n{SENTENCE * (3 + n % 5)}\n\n" for n in range(20))
    assert not any(chunk.split("\n")[-1].startswith("#") for chunk in texts_of(text, max_tokens=50))


@pytest.mark.parametrize("mark", ["```", "~~~"])
def test_a_fence_that_fits_stays_whole(mark):
    code = f"{mark}sh\n# no heading\n\nrun one\n\nrun two\n\n    and three\n{mark}\n\n"
    text = (SENTENCE * 3 + "\n\n" + code) * 6
    chunks = texts_of(text, max_tokens=40)
    assert len(chunks) > 6
    assert all(chunk.count(mark) % 2 == 0 for chunk in chunks)


@pytest.mark.parametrize("text", ["```", "text\n```", "```\n\n", "text\n\n<!--", "<pre>", "|"])
def test_what_is_opened_at_the_end_is_text(text):
    assert "".join(texts_of(text)).split() == text.split()
    assert texts_of(SENTENCE * 9 + "\n\n" + text, max_tokens=30)[-1].endswith(text.split()[-1])


def test_a_table_that_fits_stays_whole_and_a_long_one_is_cut_between_rows():
    table = "| a | b |\n|---|---|\n" + "| one | two |\n" * 4 + "\n"
    whole = texts_of((SENTENCE + "\n\n" + table) * 5, max_tokens=60)
    assert all(chunk.count("|---|") == chunk.count("| a |") for chunk in whole)
    rows = texts_of("| a | b |\n|---|---|\n" + "| one | two |\n" * 60, max_tokens=60)
    assert all(chunk.startswith("|") and chunk.endswith("|") for chunk in rows)


def test_wrapped_lines_are_cut_after_sentences():
    chunks = texts_of(WRAPPED * 8, kind="text", max_tokens=50)
    assert len(chunks) > 5
    assert all(chunk.endswith(".") for chunk in chunks)


def test_lines_that_were_ended_are_kept():
    text = "".join(f"{n} item number {n} of the list, short\n" for n in range(60))
    assert all(chunk.endswith("short") for chunk in texts_of(text, kind="text", max_tokens=30))


def test_underlined_titles_of_text_begin_chunks():
    text = "".join(f"Title {n}\n=======\n\n{SENTENCE * 4}\n\n" for n in range(10))
    assert all(chunk.startswith("Title") for chunk in texts_of(text, kind="text", max_tokens=60))


def test_what_is_introduced_stays_with_its_introduction():
    text = (SENTENCE * 2 + "\n\nYou need:\n\n- one thing\n- another thing\n\n") * 8
    assert not any(chunk.endswith(":") for chunk in texts_of(text, max_tokens=40))


def test_no_chunk_of_a_few_words_is_left_at_the_end():
    counts = [chunk.token_count for chunk in chunks_of(SENTENCE * 10 + "End.", max_tokens=100)]
    assert len(counts) == 2
    assert min(counts) > 40


def test_a_definition_stays_with_its_decorator_and_its_head():
    source = "".join(
        f"# About f{n}.\n@cache\ndef f{n}(x):\n    y = x + {n}\n    return y\n\n\n"
        for n in range(20)
    )
    chunks = texts_of(source, kind="code", max_tokens=60)
    assert all(chunk.startswith("# About") for chunk in chunks)


def test_a_chunk_of_code_keeps_its_indentation():
    source = "class A:\n" + "".join(
        f"    def f{n}(self):\n        return {n}\n\n" for n in range(20)
    )
    assert all(text.startswith("    def ") for text in texts_of(source, "code", max_tokens=30)[1:])


def test_overlap_is_whole_sentences_and_none_at_a_section():
    text = "# One\n\n" + SENTENCE * 12 + "\n\n# Two\n\n" + SENTENCE * 12
    chunks = chunks_of(text, max_tokens=50, overlap=15)
    shared = [text[b.start : a.end] for a, b in pairwise(chunks)]
    assert {each for each in shared if each} == {SENTENCE.strip()}
    second = next(chunk for chunk in chunks if chunk.headings == ("Two",))
    assert second.text.startswith("# Two")


def test_a_long_document_is_read_in_stretches_that_know_its_sections():
    section = (
        "## Part {}\n\n" + SENTENCE * 20 + "\n\n```\n# none\n" + "code line\n" * 20 + "```\n\n"
    )
    text = "# Book\n\n" + "".join(section.format(n) for n in range(400))
    assert len(text) > 2 * 2**18
    chunks = chunks_of(text, max_tokens=100)
    assert all(a.end <= b.start for a, b in pairwise(chunks))
    assert all(not text[a.end : b.start].strip() for a, b in pairwise(chunks))
    assert text[: chunks[0].start].strip() == text[chunks[-1].end :].strip() == ""
    assert {len(chunk.headings) for chunk in chunks} <= {1, 2}
    titles = [chunk.headings[-1] for chunk in chunks]
    assert [titles.index(f"Part {n}") for n in range(400)] == sorted(
        titles.index(f"Part {n}") for n in range(400)
    )


CORPUS = [SENTENCE * 3, WRAPPED, "def f(x):\n    return x\n", "e\u0301 \u732b\u3002 \U0001f468"]


@cache
def trained(name):
    unknown = {"unk_token": "[UNK]"}
    if name == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    elif name == "metaspace":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=["[UNK]"], show_progress=False, **unknown
        )
    else:
        tokenizer = Tokenizer(models.WordPiece(**unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if name == "pieces":
            tokenizer.normalizer = normalizers.BertNormalizer()
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(
            vocab_size=200, special_tokens=["[UNK]"], show_progress=False
        )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def chunkers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    counters = {"estimate": TokenEstimate()}
    for name in ("bytes", "metaspace", "pieces", "words"):
        path = folder / f"{name}.json"
        path.write_text(trained(name).to_str())
        counters[name] = JsonTokenizer(path)

    @cache
    def made(name, kind, prompt, limits):
        window = TokenWindow(counters[name], 200, prompt)
        settings = SplittingChunkerSettings(kind=kind, max_tokens=limits[0], overlap=limits[1])
        return TokenBorderChunker(chunking_recipe(settings, window, "p"), window), window

    return made


PARTS = st.sampled_from(
    [
        "word",
        "Rivers carry sand. ",
        "unbelievableword" * 3,
        " ",
        "\n",
        "\n\n",
        "\t",
        "# Title\n",
        "```\n",
        "| a | b |\n",
        "'s",
        "e\u0301",
        "\u0301",
        "\u732b\u3002",
        "\U0001f468\u200d\U0001f469",
        "\ufb01",
        "\u0130",
        "\u200b",
        "\u00a0",
        "\u3000",
        "\x1c",
        "\u2581",
    ]
)


@pytest.mark.parametrize("name", ["bytes", "estimate", "metaspace", "pieces", "words"])
def test_with_any_tokenizer_counts_are_exact_and_nothing_is_lost(chunkers, name):
    @given(
        text=st.lists(PARTS | st.text(max_size=6), max_size=50).map("".join),
        kind=st.sampled_from(["text", "markdown", "code"]),
        prompt=st.sampled_from(["", "query: ", "q"]),
        limits=st.sampled_from([(12, 0), (20, 6)]),
    )
    def check(text, kind, prompt, limits):
        chunker, window = chunkers(name, kind, prompt, limits)
        [chunks] = chunker.chunk([ParsedDocument(text, format=kind)])
        assert [chunk.token_count for chunk in chunks] == window.count([c.text for c in chunks])
        assert all(chunk.token_count <= window.overhead + limits[0] for chunk in chunks)
        seen = bytearray(len(text))
        for chunk in chunks:
            assert text[chunk.start : chunk.end] == chunk.text
            seen[chunk.start : chunk.end] = b"\1" * len(chunk.text)
        assert all(covered or char.isspace() for covered, char in zip(seen, text, strict=True))

    check()


MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# One\n",
            "## Two ##\n",
            "###### Six\n",
            "#none\n",
            "Title\n=====\n",
            "Long title\nof two lines\n---\n",
            "text\n",
            "more text\n",
            "\n",
            "```\n# code\n```\n",
            "~~~\n# code\n\n~~~\n",
            "    # indented\n",
            "***\n",
            "<!--\n# comment\n-->\n",
            '<a id="x"></a>\n# After a tag\n',
            "<div>\n# in HTML\n",
            "<pre>\n\n# as it is\n</pre>\n",
        ]
    ),
    max_size=12,
).map("".join)


@given(MARKDOWN)
def test_headings_are_those_of_commonmark(text):
    words = WordReader(word_measure(WordTokenizer()), 1000).read(text)
    if not len(words):
        return
    lines = lines_of(words)
    found = markdown_lines(text, words, lines).headings
    expected = sections_of(text)
    assert [int(lines.starts[each.line]) for each in found] == [each.start for each in expected]
    titles = [each.path[-1] for each in expected if each.path]
    assert [each.title for each in found if each.title] == titles
