import pytest

from embedmill.parsers.by_media_type import MediaTypeParser


def parse(text, encoding="utf-8"):
    return MediaTypeParser(None).parse(text.encode(encoding), "text/markdown")


FULL = """---
title: "A: B"
tags: [x, y]
date: 2024-01-05
at: 2024-01-05T10:00:00Z
author: {name: N, 1: one}
draft: false
count: 3
score: .nan
big: 123456789012345678901
kinds: !!set {b, a}
---
Body
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_front_matter_becomes_metadata_with_its_types(line_end, encoding):
    parsed = parse(FULL.replace("\n", line_end), encoding)

    assert parsed.text == f"Body{line_end}"
    assert parsed.metadata == {
        "title": "A: B",
        "tags": ["x", "y"],
        "date": "2024-01-05",
        "at": "2024-01-05T10:00:00+00:00",
        "author": {"name": "N", "1": "one"},
        "draft": False,
        "count": 3,
        "score": None,
        "big": "123456789012345678901",
        "kinds": ["a", "b"],
    }
    assert parsed.warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule opens this text.\n\n---\n\nAnother follows.\n",
        "---\nno end\n",
        "---\njust text\n---\nmore",
        "---\n- a\n- b\n---\nmore",
        "----\ntitle: x\n----\nmore",
        "---\nWhat [is this?\n---\nmore",
        "text\n---\ntitle: x\n---\n",
        "\n---\ntitle: x\n---\n",
        "---\n" + "word: x\n" * 10_000 + "---\nmore",
        "# Heading\n\n- a\u2028b\n",
        "",
        "---",
    ],
)
def test_what_is_no_front_matter_stays_text(text):
    parsed = parse(text)

    assert (parsed.text, parsed.metadata, parsed.warnings) == (text, {}, ())


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("kin: [a: b: c\n", "line 2, column 11"),
        ("a: 1\nb: &x [1]\nc: *x\n", "line 4, column 4"),
        ("# comment\n\na: 1\n b: 2\n", "line 5"),
        ("date: 2024-13-45\n", "month"),
        ("a: !!python/object:os.system {}\n", "line 2"),
        ("a: " + "[" * 5000 + "\n", "recursion"),
        ("a: \x07\n", "#x0007"),
    ],
)
def test_invalid_front_matter_is_kept_as_text_in_the_metadata_with_a_warning(block, place):
    parsed = parse(f"---\n{block}---\nBody")

    assert parsed.text == "Body"
    assert parsed.metadata == {"front_matter": block}
    (warning,) = parsed.warnings
    assert warning.startswith("front matter is not valid YAML")
    assert place in warning
    assert "\n" not in warning


def test_empty_front_matter_is_no_text():
    assert parse("---\n---\nBody").text == "Body"
    assert parse("---\n# nothing yet\n...\nBody").text == "Body"


def test_spaces_around_keys_and_markers_do_no_harm():
    parsed = parse("--- \ntitle : spaced\n---  \nBody")

    assert (parsed.text, parsed.metadata) == ("Body", {"title": "spaced"})


def test_markup_within_fences_is_text_like_any_other():
    text = "## A\n\n```html\n<h1>x</h1>\n```\n## B\n```xml\n<a/>\n```\n"

    assert parse(text).text == text


@pytest.mark.parametrize("block", ['title: "\\uD800"', "a: " + "[" * 300 + "]" * 300])
def test_front_matter_that_json_cannot_hold_is_kept_word_for_word_with_a_warning(block):
    content = f"---\n{block}\n---\nText\n".encode()
    parsed = MediaTypeParser().parse(content, "text/markdown")
    assert parsed.metadata == {"front_matter": block + "\n"}
    assert len(parsed.warnings) == 1
