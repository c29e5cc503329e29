from embedmill.chunkers.build import build_chunker
from embedmill.chunkers.headings import path_at, sections_of
from embedmill.parser import ParsedDocument
from embedmill.settings import HashingEmbedderSettings, SplittingChunkerSettings

GUIDE = """Before any heading.

# Guide #

Intro to it.

## Install `it`

```sh
# not a heading
```

~~~
## nor this
~~~

    # nor indented code

> # nor a quotation

Set *up*
--------

Steps.

### Details

Deep.

Second
======

End.
"""


def paths():
    return [section.path for section in sections_of(GUIDE)]


def test_atx_and_setext_headings_make_nested_sections():
    assert paths() == [
        ("Guide",),
        ("Guide", "Install `it`"),
        ("Guide", "Set *up*"),
        ("Guide", "Set *up*", "Details"),
        ("Second",),
    ]


def test_a_section_starts_at_the_line_of_its_heading():
    for line_end in ("\n", "\r\n", "\r"):
        text = GUIDE.replace("\n", line_end)
        starts = [text[section.start :].split(line_end)[0] for section in sections_of(text)]
        assert starts == ["# Guide #", "## Install `it`", "Set *up*", "### Details", "Second"]


def test_an_offset_before_the_first_heading_has_no_path():
    sections = sections_of(GUIDE)
    assert path_at(sections, 0) == ()
    assert path_at(sections, GUIDE.index("# Guide")) == ("Guide",)
    assert path_at(sections, GUIDE.index("Deep")) == ("Guide", "Set *up*", "Details")
    assert path_at([], 5) == ()


def test_skipped_levels_and_empty_headings_leave_no_gaps():
    text = "### Deep first\n\n# Top\n\n#\n\n### Under empty\n"
    assert [section.path for section in sections_of(text)] == [
        ("Deep first",),
        ("Top",),
        (),
        ("Under empty",),
    ]


def test_a_chunk_has_the_headings_of_the_section_where_it_starts():
    settings = SplittingChunkerSettings(kind="markdown", max_tokens=14)
    chunker = build_chunker(settings, HashingEmbedderSettings(kind="hashing"), "parser-1")
    [chunks] = chunker.chunk([ParsedDocument(GUIDE, format="markdown")])
    headings = {chunk.text.split("\n")[0]: chunk.headings for chunk in chunks}
    assert headings["Before any heading."] == ()
    assert headings["## Install `it`"] == ("Guide", "Install `it`")
    assert headings["Set *up*"] == ("Guide", "Set *up*")
    assert headings["### Details"] == ("Guide", "Set *up*", "Details")
    assert headings["Second"] == ("Second",)


def test_a_long_text_is_parted_at_its_sections():
    section = "# Title {}\n\n" + "word " * 300 + "\n\n```\n" + "code\n\n\n\n" * 200 + "```\n\n"
    text = "".join(section.format(number) for number in range(12))
    settings = SplittingChunkerSettings(kind="markdown", max_tokens=50)
    chunker = build_chunker(settings, HashingEmbedderSettings(kind="hashing"), "parser-1")
    [chunks] = chunker.chunk([ParsedDocument(text, format="markdown")])
    titles = [chunk for chunk in chunks if "# Title" in chunk.text]
    assert [chunk.headings for chunk in titles] == [(f"Title {n}",) for n in range(12)]
    assert all(chunk.text.startswith("# Title") for chunk in titles)
