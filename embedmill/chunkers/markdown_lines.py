"""What the lines of a Markdown text are: headings, fences, tables, items.

A scanner of our own: the blocks of CommonMark by its reference parser in Python take ten times as
long as all the rest of chunking (5 MB/s). It does not follow containers: a heading is what stands
at the left margin outside of code, comments, HTML and lists.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from markdown_it.common.html_blocks import block_names

from embedmill.chunkers.lines import Lines
from embedmill.chunkers.marks import Flags, Marks
from embedmill.chunkers.words import Integers, Words

_HEADING = re.compile(r"(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
_UNDERLINE = re.compile(r"(=+|-+)[ \t]*$")
_RULE = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
# What ends at a blank line: known tags, and any other tag that stands alone.
_HTML = re.compile(
    rf"<(?:[!?]|/?(?:{'|'.join(block_names)})(?:[ \t>]|/>|$))|</?[a-zA-Z][^<>]*>[ \t]*$",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"<(pre|script|style|textarea)\b", re.IGNORECASE)
# In lines; what is longer is text with a rule under it.
_LONGEST_TITLE = 100
_WATCHED = Marks("#`~=-<*_")
_BULLETS, _AFTER_NUMBERS = Marks("-*+\u2022"), Marks(".)")


@dataclass(frozen=True, slots=True)
class Heading:
    """One heading.

    Attributes:
        line: index of its first line.
        last: index of its last line: the underline of an underlined one.
        level: from 1.
        title: without marks.
    """

    line: int
    last: int
    level: int
    title: str


@dataclass(slots=True)
class MarkdownLines:
    """What was found, by indices of lines.

    Attributes:
        headings: in order.
        rules: lines across the page.
        blocks: first and last line of what is best kept whole: fenced code, tables, comments; of
            two lines at least.
        items: lines that begin an item of a list.
    """

    headings: list[Heading] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    items: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))


def markdown_lines(text: str, words: Words, lines: Lines) -> MarkdownLines:
    """Scan a text."""
    return _Scanner(text, words, lines).scan()


@dataclass(slots=True)
class _Closers:
    """Lines that may close a fence.

    Attributes:
        lines: in order.
        lengths: of their marks.
        longest: of each line's mark and all after it.
    """

    lines: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)

    def after(self, line: int, length: int) -> int | None:
        """The first one after ``line`` that is long enough."""
        at = bisect_right(self.lines, line)
        if at == len(self.lines) or self.longest[at] < length:
            return None
        later = range(at, len(self.lines))
        return next(self.lines[each] for each in later if self.lengths[each] >= length)


class _Scanner:
    def __init__(self, text: str, words: Words, lines: Lines) -> None:
        self._text = text
        self._ends = words.ends[lines.last]
        self._first = words.starts[lines.first]
        self._lines = lines
        self._words = words
        self._found = MarkdownLines(items=list_items(words, lines))
        # The last line so far that is an item or stands at the margin.
        at_margin = (lines.indent == 0) | self._found.items
        self._margin = np.maximum.accumulate(np.where(at_margin, np.arange(len(lines)), -1))
        self._closers = {mark: self._closing_lines(mark) for mark in "`~"}

    def scan(self) -> MarkdownLines:
        lines = self._lines
        watched = np.flatnonzero(_WATCHED(lines.opening)).tolist()
        beyond = -1
        for line in watched:
            if line <= beyond:
                continue
            beyond = max(beyond, self._region(line))
            if beyond < line:
                self._single(line)
        self._found.blocks += self._tables()
        self._found.blocks.sort()
        return self._found

    def _content(self, line: int) -> str:
        return self._text[self._first[line] : self._ends[line]]

    def _region(self, line: int) -> int:
        """Last line of the fence, comment or HTML that begins here; -1 where none does."""
        opening = self._text[self._first[line]]
        if opening in "`~":
            fence = _FENCE.match(self._content(line))
            if fence is None or (opening == "`" and "`" in fence[2]):
                return -1
            return self._fence(line, fence[1])
        if opening == "<" and self._lines.indent[line] < 4 and self._is_html(line):
            return self._html(line)
        return -1

    def _fence(self, line: int, mark: str) -> int:
        """Close at the first line of enough marks, or where the list that it stands in ends."""
        lines = self._lines
        last = self._closers[mark[0]].after(line, len(mark))
        if last is None:
            last = len(lines) - 1
            if lines.indent[line]:
                out = np.flatnonzero(lines.indent[line + 1 :] < lines.indent[line])
                last = line + int(out[0]) if len(out) else last
        if last > line:
            self._found.blocks.append((line, last))
        return last

    def _is_html(self, line: int) -> bool:
        content = self._content(line)
        return bool(_HTML.match(content) or _LITERAL.match(content))

    def _closing_lines(self, mark: str) -> _Closers:
        closers = _Closers()
        for line in np.flatnonzero(self._lines.opening == ord(mark)).tolist():
            content = self._content(line)
            if len(content) > 2 and not content.strip(mark):
                closers.lines.append(line)
                closers.lengths.append(len(content))
        closers.longest = list(accumulate(reversed(closers.lengths), max))[::-1]
        return closers

    def _html(self, line: int) -> int:
        content = self._content(line)
        literal = _LITERAL.match(content)
        closing = "-->" if content.startswith("<!--") else literal and f"</{literal[1]}>"
        if closing:
            found = re.compile(closing, re.IGNORECASE).search(self._text, int(self._first[line]))
            if found is None:
                return len(self._lines) - 1
            last = int(np.searchsorted(self._lines.starts, found.start(), "right")) - 1
            if last > line:
                self._found.blocks.append((line, last))
            return last
        gaps = np.flatnonzero(self._lines.gap[line + 1 :] > 0)
        return line + int(gaps[0]) if len(gaps) else len(self._lines) - 1

    def _single(self, line: int) -> None:
        if self._lines.indent[line] > 3:
            return
        content = self._content(line)
        if content[0] == "#":
            heading = _HEADING.match(content)
            if heading and not self._in_list(line):
                title = " ".join((heading[2] or "").split())
                self._found.headings.append(Heading(line, line, len(heading[1]), title))
        elif content[0] in "=-" and _UNDERLINE.match(content) and self._underlined(line):
            return
        elif _RULE.match(content):
            self._found.rules.append(line)

    def _underlined(self, line: int) -> bool:
        """Whether the paragraph that ends before this line is a heading."""
        begin = self._paragraph(line)
        # Indented code ends where a line stands further left.
        while begin < line and self._lines.indent[begin] > 3:
            begin += 1
        if begin == line or self._in_list(begin):
            return False
        titles = [" ".join(self._content(at).split()) for at in range(begin, line)]
        level = 1 if self._content(line)[0] == "=" else 2
        self._found.headings.append(Heading(begin, line, level, " ".join(titles)))
        return True

    def _paragraph(self, line: int) -> int:
        """First line of the paragraph that a line goes on; the line itself where there is none."""
        begin = line
        for _ in range(_LONGEST_TITLE):
            if begin == 0 or self._lines.gap[begin] > 0:
                return begin
            if not self._is_prose(begin - 1):
                return begin if self._closes(begin - 1) else line
            begin -= 1
        return line

    def _is_prose(self, line: int) -> bool:
        content = self._content(line)
        return not (
            self._found.items[line]
            or content[0] in ">|"
            or (self._found.blocks and self._found.blocks[-1][1] >= line)
            or (self._found.headings and self._found.headings[-1].last >= line)
            or (self._found.rules and self._found.rules[-1] >= line)
            or (content[0] == "<" and bool(_HTML.match(content)))
        )

    def _closes(self, line: int) -> bool:
        """Whether a line cannot go on in the next one: code, a heading, a rule."""
        in_block = self._found.blocks and self._found.blocks[-1][1] >= line
        return bool(in_block) or not (self._found.items[line] or self._content(line)[0] in ">|<")

    def _in_list(self, line: int) -> bool:
        """Whether an indented line belongs to an item before it."""
        lines = self._lines
        if lines.indent[line] == 0 or line == 0:
            return False
        before = int(self._margin[line - 1])
        return (
            before >= 0
            and bool(self._found.items[before])
            and bool(lines.indent[line] >= lines.indent[before] + 2)
        )

    def _tables(self) -> Iterator[tuple[int, int]]:
        rows = np.flatnonzero(self._lines.opening == ord("|"))
        covered = self._found.blocks
        begins = [first for first, _ in covered]
        for first, last in _runs(rows, self._lines.gap):
            before = bisect_right(begins, first) - 1
            if last > first and not (before >= 0 and covered[before][1] >= first):
                yield first, last


def _runs(rows: Integers, gap: Integers) -> Iterator[tuple[int, int]]:
    """First and last of rows that follow each other without a blank line."""
    if not len(rows):
        return
    breaks = np.flatnonzero((np.diff(rows) > 1) | (gap[rows[1:]] > 0))
    firsts = rows[np.append(0, breaks + 1)]
    lasts = rows[np.append(breaks, len(rows) - 1)]
    yield from zip(firsts.tolist(), lasts.tolist(), strict=True)


def list_items(words: Words, lines: Lines) -> Flags:
    """Lines that begin with a mark or a number of a list."""
    lengths = (words.ends - words.starts)[lines.first]
    closing = words.codes[words.ends[lines.first] - 1]
    marked = (lengths == 1) & _BULLETS(lines.opening)
    digits = (lines.opening >= ord("0")) & (lines.opening <= ord("9"))
    numbered = digits & (lengths <= 10) & _AFTER_NUMBERS(closing)
    found: Flags = marked | numbered
    return found
