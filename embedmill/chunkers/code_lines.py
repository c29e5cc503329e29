"""Source code by its indentation: what stands further left parts what stands further right."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from embedmill.chunkers.lines import Lines, ends_with
from embedmill.chunkers.marks import Marks
from embedmill.chunkers.words import Integers, Words

# At the margin, by blank lines before it.
_DEFINITION, _FAR_DEFINITION, _STATEMENT = 5, 2, 16
# For each level of indentation, and what a missing blank line adds.
_DEPTH, _DEEPEST, _CLOSE = 8, 6, 22
# Goes on what stands before: closing brackets, else, a body under its head, what a decorator or a
# comment stands over.
_TORN = 200
# In a string over several lines.
_IN_STRING = 60
_GOES_ON = re.compile(r"[)\]}]|(?:else|elif|except|finally|case|catch|and|or)\b")
_LONG_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|' + r"'''(?:[^'\\]|\\.|'(?!''))*'''", re.DOTALL
)
_OPENING = Marks(":{([,\\")
_OVER = ("@", "#", "//", "/*", "*", "///")


@dataclass(frozen=True, slots=True)
class CodeLines:
    """One cost for each line."""

    costs: Integers


def code_lines(text: str, words: Words, lines: Lines) -> CodeLines:
    """Scan source code; Python best, others by their indentation."""
    depth = np.minimum((lines.indent + 2) // 4, _DEEPEST)
    costs = np.where(
        lines.gap > 0,
        np.where(lines.gap > 1, _FAR_DEFINITION, _DEFINITION) + _DEPTH * depth,
        _STATEMENT + _DEPTH * depth + np.where(depth > 0, _CLOSE, 0),
    )
    before = np.append(0, lines.last[:-1])
    opens = ends_with(words, _OPENING)[before]
    # A body stands further right than its head.
    deeper = np.append(False, lines.indent[1:] > lines.indent[:-1])
    costs[opens & deeper] = _TORN
    first = words.starts[lines.first].tolist()
    for line, start in enumerate(first):
        if _GOES_ON.match(text, start):
            costs[line] = max(int(costs[line]), _TORN)
        elif text.startswith(_OVER, start) and line + 1 < len(first) and not lines.gap[line + 1]:
            costs[line + 1] = _TORN
    _in_strings(text, lines, costs)
    return CodeLines(costs)


def _in_strings(text: str, lines: Lines, costs: Integers) -> None:
    for found in _LONG_STRING.finditer(text):
        inside = slice(*np.searchsorted(lines.starts, [found.start() + 1, found.end()]).tolist())
        costs[inside] += _IN_STRING
