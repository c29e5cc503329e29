"""The sections of a Markdown text, as CommonMark has them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt

# Blocks only; titles are kept as they are written. 100 KB take 10 ms.
_MARKDOWN = MarkdownIt("commonmark").disable("inline")
_LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True, slots=True)
class Section:
    """What begins with a heading and ends where the next one begins.

    Attributes:
        start: of the heading's line, in code points.
        path: titles, outermost first, its own at the end.
    """

    start: int
    path: tuple[str, ...]


def sections_of(text: str) -> list[Section]:
    """Sections by ATX and setext headings; not those in code blocks, quotations or lists."""
    line_starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
    tokens = _MARKDOWN.parse(text)
    sections: list[Section] = []
    open_titles: list[tuple[int, str]] = []
    for token, content in pairwise(tokens):
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        level = int(token.tag[1:])
        open_titles = [each for each in open_titles if each[0] < level]
        open_titles.append((level, " ".join(content.content.split())))
        path = tuple(title for _, title in open_titles if title)
        sections.append(Section(line_starts[token.map[0]], path))
    return sections


def path_at(sections: list[Section], offset: int) -> tuple[str, ...]:
    """Titles of the section in which ``offset`` stands; none before the first heading."""
    found = bisect_right(sections, offset, key=lambda section: section.start)
    return sections[found - 1].path if found else ()
