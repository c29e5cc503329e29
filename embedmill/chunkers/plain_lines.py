"""Titles in plain text and reStructuredText: lines with a line of marks under them."""

from __future__ import annotations

import numpy as np

from embedmill.chunkers.lines import Lines
from embedmill.chunkers.markdown_lines import Heading
from embedmill.chunkers.marks import Marks
from embedmill.chunkers.words import Words

_MARKS = Marks("=-~^\"'`#*+:._")
_SHORTEST = 3
_DEEPEST = 6


def underlined_titles(text: str, words: Words, lines: Lines) -> list[Heading]:
    """Titles in order; whose mark comes first in the text is above the others."""
    lengths = words.ends[lines.last] - words.starts[lines.first]
    alone = (lines.first == lines.last) & (lengths >= _SHORTEST)
    candidates = np.flatnonzero(alone & (lines.gap == 0) & _MARKS(lines.opening))
    titles: list[Heading] = []
    levels: dict[str, int] = {}
    for line in candidates.tolist():
        title = line - 1
        if title < 0 or lines.indent[title] > lines.indent[line]:
            continue
        start = int(words.starts[lines.first[line]])
        mark = text[start]
        if text[start : start + int(lengths[line])] != mark * int(lengths[line]):
            continue
        # A wider title stands over a rule or a table, not over its own underline.
        if lengths[title] > lengths[line] + 2 or lines.opening[title] == ord(mark):
            continue
        over = title > 0 and lines.gap[title] == 0
        if over and text[int(words.starts[lines.first[title - 1]])] != mark:
            continue
        level = min(levels.setdefault(mark, len(levels) + 1), _DEEPEST)
        titles.append(Heading(title - 1 if over else title, line, level, ""))
    return titles
