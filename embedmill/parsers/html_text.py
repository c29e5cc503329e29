"""Laying out the text of a page as Markdown, from starts, ends and strings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Of HTML as a whole, part of the chunking recipe: raise it when the same bytes come out as another
# text.
VERSION = 1

_SPACE = " \t\n\r\f"
# The spaces of HTML; a no-break space is a character like any other.
_SPACES = re.compile(f"[{_SPACE}]+")
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Elements that end the line before them and their own.
_LINES = frozenset({"br", "dd", "dt", "li", "option", "summary", "tr", "legend", "caption"})
# Elements that stand apart from what is around them.
_APART = """
    address article aside blockquote body center details dialog dir div dl fieldset figcaption
    figure footer form head header hgroup hr html main menu nav ol optgroup p pre search section
    select table tbody textarea tfoot thead title ul
"""
_PARAGRAPHS = frozenset(_APART.split()) | frozenset(_HEADINGS)
_CELLS = frozenset({"td", "th"})

# Lines of ordinary text that Markdown would take for structure: a heading, also within list and
# quotation marks; the underline of a heading; a fence; the start of an HTML block.
_MARKER = r"(?:[>*+-]|\d{1,9}[.)])"
_STRUCTURE = re.compile(rf"\A((?:{_MARKER} |>)*)(?=#{{1,6}}(?: |$)|=+$|-+$|```|~~~|<[A-Za-z/!?])")
_BACKTICKS = re.compile(r"`{3,}")


@dataclass(slots=True)
class HtmlText:
    """Collects the text of one page.

    Spacing is decided when the next text comes: the largest of what stood between two pieces of
    text counts, and none is left at the ends.
    """

    _done: list[str] = field(default_factory=list)
    # Of the line that is open.
    _pieces: list[str] = field(default_factory=list)
    _space: bool = False
    _cells: int = 0
    # Level of the heading that is open, 0 for none.
    _heading: int = 0
    # Line ends that come before the next line.
    _gap: int = 0
    _pre: list[str] = field(default_factory=list)
    _pre_depth: int = 0

    def start(self, name: str) -> None:
        """An element starts."""
        if name == "pre":
            self._break("pre")
            self._pre_depth += 1
        elif name in _CELLS:
            # The first cell of a row has nothing before it on its line.
            self._cells += bool(self._pieces)
        else:
            self._break(name)
            self._heading = _HEADINGS.get(name, self._heading)

    def end(self, name: str) -> None:
        """An element ends."""
        if name == "br":
            return
        self._break(name)
        if name in _HEADINGS:
            self._heading = 0
        if name == "pre":
            self._pre_depth -= 1
            self._close_pre()

    def add(self, string: str) -> None:
        """A string, with its spacing as it stands in the page."""
        if self._pre_depth:
            self._pre.append(string)
            return
        text = _SPACES.sub(" ", string)
        words = text.strip(" ")
        self._space = self._space or text.startswith(" ")
        if words:
            if self._cells:
                self._pieces.append(" |" * self._cells + " ")
            elif self._space and self._pieces:
                self._pieces.append(" ")
            self._pieces.append(words)
            self._cells, self._space = 0, text.endswith(" ")

    def finish(self) -> str:
        """The whole text."""
        self._pre_depth = 0
        self._close_pre()
        self._close_line()
        return "".join(self._done)

    def _break(self, name: str) -> None:
        gap = 2 if name in _PARAGRAPHS else int(name in _LINES)
        if not gap:
            return
        if self._pre_depth:
            if name == "br" or (self._pre and not self._pre[-1].endswith("\n")):
                self._pre.append("\n")
        elif self._heading and (gap == 1 or not self._pieces):
            # A heading is one line of Markdown.
            self._space = True
        else:
            self._close_line()
            self._gap = max(self._gap, gap)

    def _close_line(self) -> None:
        line = "".join(self._pieces)
        if line:
            escaped = _STRUCTURE.sub(r"\1\\", line) if not self._heading else line
            self._write("#" * self._heading + " " * bool(self._heading) + escaped)
            # Whatever else stands in the element, the heading ends with its line.
            self._heading = 0
        self._pieces.clear()
        self._cells, self._space = 0, False

    def _close_pre(self) -> None:
        if self._pre_depth:
            return
        # HTML ignores a line end right after the tag.
        text = re.sub(r"\A\r?\n", "", "".join(self._pre)).rstrip()
        self._pre.clear()
        if text:
            longest = max(map(len, _BACKTICKS.findall(text)), default=2)
            fence = "`" * (longest + 1)
            self._gap = 2
            self._write(f"{fence}\n{text}\n{fence}")
            self._gap = 2

    def _write(self, block: str) -> None:
        if self._done:
            self._done.append("\n" * max(self._gap, 1))
        self._done.append(block)
        self._gap = 0
