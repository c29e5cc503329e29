"""A stretch of a text, read and ready to be cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from embedmill.chunkers.borders import KEPT, WORD, Costs, Structure, border_costs, keep_whole
from embedmill.chunkers.code_lines import code_lines
from embedmill.chunkers.cutting import Cut, Room, cut
from embedmill.chunkers.lines import lines_of
from embedmill.chunkers.markdown_lines import markdown_lines
from embedmill.chunkers.marks import Flags
from embedmill.chunkers.plain_lines import underlined_titles
from embedmill.chunkers.words import WordReader, Words
from embedmill.parser import TextFormat

# Longer runs of blanks part a text: no reader misses them, and a store would have to keep them.
_LONGEST_BLANK = 256
# An indentation that is worth keeping at the beginning of a chunk.
_DEEPEST_INDENT = 64


@dataclass(slots=True)
class Stretch:
    """Some hundred chunks of a document at most.

    Attributes:
        text: of the stretch.
        words: of the text.
        costs: of a border before each word.
        barriers: words before which a border must stand.
        titles: offset, level and title of each heading.
        indented: the indentation before a chunk is a part of it.
    """

    text: str
    words: Words
    costs: Costs
    barriers: Flags
    titles: list[tuple[int, int, str]]
    indented: bool

    def cuts(self, room: Room) -> list[Cut]:
        """Its chunks."""
        return cut(self.words, self.costs, self.barriers, room)

    def span(self, chunk: Cut) -> tuple[int, int]:
        """Offsets of a chunk; blanks of any kind are left out at its ends, but for indentation."""
        start, end = int(self.words.starts[chunk.first]), int(self.words.ends[chunk.last])
        text = self.text[start:end]
        end = start + len(text.rstrip())
        start = min(end, start + len(text) - len(text.lstrip()))
        if self.indented:
            before = self.text[max(0, start - _DEEPEST_INDENT) : start]
            line = before.rstrip(" \t")
            if (line and line[-1] in "\r\n") or (not line and len(before) == start):
                start -= len(before) - len(line)
        return start, end

    def size(self, chunk: Cut) -> int:
        """Measures of its words."""
        return int(self.words.sizes[chunk.first : chunk.last + 1].sum())

    def is_whole(self, chunk: Cut, span: tuple[int, int]) -> bool:
        """Whether a span has all of the chunk's words, and none of them is a part of a long one."""
        start, end = int(self.words.starts[chunk.first]), int(self.words.ends[chunk.last])
        parts = self.words.inner[chunk.first : chunk.last + 2]
        return span[0] <= start and span[1] == end and not parts.any()

    def enlarge(self, chunk: Cut, size: int, room: Room) -> None:
        """Take its words for as large as they turned out to be together."""
        at = slice(chunk.first, chunk.last + 1)
        sizes, costs = self.words.sizes[at], self.costs[at]
        larger = -(-sizes * size // max(1, int(sizes.sum())))
        self.words.sizes[at] = np.minimum(larger, room.size)
        # What was to stay whole need not fit any more.
        costs[costs == KEPT] = WORD


def read_stretch(text: str, structure: TextFormat, reader: WordReader, room: Room) -> Stretch:
    """Read a text, or the beginning of one."""
    words = reader.read(text)
    lines = lines_of(words)
    titles: list[tuple[int, int, str]] = []
    match structure:
        case "markdown":
            found = markdown_lines(text, words, lines)
            what = Structure(tuple(found.headings), markdown=found)
            titles = [
                (int(lines.starts[each.line]), each.level, each.title) for each in found.headings
            ]
        case "code":
            what = Structure(code=code_lines(text, words, lines))
        case "text":
            what = Structure(tuple(underlined_titles(text, words, lines)))
    costs = border_costs(words, lines, what)
    keep_whole(words, lines, what, costs, (room.size, room.characters))
    barriers = np.zeros(len(words), np.bool_)
    barriers[1:] = words.starts[1:] - words.ends[:-1] > _LONGEST_BLANK
    return Stretch(text, words, costs, barriers, titles, structure != "text")


def beginning(stretch: Stretch) -> int:
    """Of a stretch that does not end its text: the first word that belongs to the next one.

    The best border of its last quarter.
    """
    count = len(stretch.words)
    first = max(1, count * 3 // 4)
    if first >= count:
        return count
    costs = stretch.costs[first:]
    return first + len(costs) - 1 - int(np.argmin(costs[::-1]))


def cut_off(stretch: Stretch, at: int) -> Stretch:
    """The stretch without its words from ``at`` on."""
    words = stretch.words
    end = int(words.ends[at - 1])
    return Stretch(
        stretch.text[:end],
        Words(
            words.starts[:at],
            words.ends[:at],
            words.sizes[:at],
            words.inner[:at],
            words.codes[:end],
        ),
        stretch.costs[:at],
        stretch.barriers[:at],
        [title for title in stretch.titles if title[0] < end],
        stretch.indented,
    )
