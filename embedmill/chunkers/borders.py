"""How much a reader minds a chunk that ends before a word: the lower, the better a border.

Costs are whole numbers, so that every machine cuts alike. One more chunk costs 50.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from embedmill.chunkers.code_lines import CodeLines
from embedmill.chunkers.lines import Lines, ends_sentence, ends_with
from embedmill.chunkers.markdown_lines import Heading, MarkdownLines, list_items
from embedmill.chunkers.marks import WIDE_CLAUSE_MARKS, WIDE_SENTENCE_MARKS, Flags, Marks
from embedmill.chunkers.words import Integers, Words

# Before a heading, by level.
HEADING = (0, 1, 2, 3, 4, 5)
# Cheaper borders begin a section.
SECTION = 6
_RULE = 4
# Before a paragraph, by whether it stands at the margin; more blank lines are better.
_PARAGRAPH, _FAR_PARAGRAPH, _INDENTED_PARAGRAPH = 8, 7, 16
_ITEM = 30
# A line that its writer ended, and one that only goes on.
_LINE, _WRAPPED_LINE = 48, 120
_SENTENCE, _CLAUSE, WORD = 60, 110, 160
# Within code, tables and comments.
_BLANK_LINE_IN_BLOCK, _LINE_IN_BLOCK = 40, 50
# For each level of indentation.
_DEPTH, _DEEPEST = 5, 6
# What follows belongs to what stands before: a heading and its text, the mark of a fence.
_TORN, _IN_TITLE = 200, 300
# After a line with a colon at its end.
_INTRODUCED = 25
_INNER_SENTENCE, _INNER_CLAUSE, _INNER = 62, 112, 400
# Never: what stands around fits a chunk and is to stay whole.
KEPT = 10_000

_CLAUSE_MARKS, _COLONS = Marks(",;:)"), Marks(":\uff1a")
_INNER_SENTENCE_MARKS, _INNER_CLAUSE_MARKS = Marks(WIDE_SENTENCE_MARKS), Marks(WIDE_CLAUSE_MARKS)

Costs = Integers


@dataclass(frozen=True, slots=True)
class Structure:
    """What a text was recognised as.

    Attributes:
        headings: in order, for the path of each chunk as well.
        markdown: of a Markdown text.
        code: of source code.
    """

    headings: tuple[Heading, ...] = ()
    markdown: MarkdownLines | None = None
    code: CodeLines | None = None


def border_costs(words: Words, lines: Lines, structure: Structure) -> Costs:
    """The cost of a border before each word."""
    costs = np.full(len(words), WORD, np.int64)
    costs[1:][ends_with(words, _CLAUSE_MARKS)[:-1]] = _CLAUSE
    inner = np.flatnonzero(words.inner)
    if structure.code is not None:
        costs[lines.first] = structure.code.costs
        _inner_costs(words, inner, costs)
        return costs
    sentences = ends_sentence(words)
    costs[1:][sentences[:-1]] = _SENTENCE
    _inner_costs(words, inner, costs)
    for heading in structure.headings:
        title = slice(int(lines.first[heading.line]), int(lines.last[heading.last]) + 1)
        costs[title] = np.maximum(costs[title], _IN_TITLE)
    costs[lines.first] = _line_costs(words, lines, structure, sentences)
    if structure.markdown is not None:
        _block_costs(lines, structure.markdown, costs)
    return costs


def _inner_costs(words: Words, inner: Integers, costs: Costs) -> None:
    before = words.codes[words.ends[inner - 1] - 1]
    costs[inner] = np.where(
        _INNER_SENTENCE_MARKS(before),
        _INNER_SENTENCE,
        np.where(_INNER_CLAUSE_MARKS(before), _INNER_CLAUSE, _INNER),
    )


def _line_costs(words: Words, lines: Lines, structure: Structure, sentences: Flags) -> Costs:
    gap, indent = lines.gap, lines.indent
    before = np.append(0, lines.last[:-1])
    costs = np.where(
        lines.wrapped,
        np.where(sentences[before], _SENTENCE - 1, _WRAPPED_LINE),
        np.where(sentences[before], _LINE - 3, _LINE),
    )
    depth = np.minimum(indent // 2, _DEEPEST)
    items = structure.markdown.items if structure.markdown else list_items(words, lines)
    costs[items] = _ITEM + depth[items]
    apart = gap > 0
    costs[apart] = np.where(indent > 1, _INDENTED_PARAGRAPH + depth, _PARAGRAPH)[apart]
    costs[(gap > 1) & (indent < 2)] = _FAR_PARAGRAPH
    introduced = ends_with(words, _COLONS)[before]
    costs[introduced] += _INTRODUCED
    for heading in structure.headings:
        costs[heading.line] = HEADING[heading.level - 1]
        costs[heading.line + 1 : heading.last + 2] = _TORN
    if structure.markdown is not None and structure.markdown.rules:
        costs[structure.markdown.rules] = _RULE
    return costs


def _block_costs(lines: Lines, found: MarkdownLines, costs: Costs) -> None:
    """Within blocks, which have no sentences."""
    for first, last in found.blocks:
        inside = slice(int(lines.first[first]) + 1, int(lines.last[last]) + 1)
        costs[inside] = np.maximum(costs[inside], WORD)
        rows = slice(first + 1, last + 1)
        depth = np.minimum(lines.indent[rows] // 2, _DEEPEST)
        costs[lines.first[rows]] = (
            np.where(lines.gap[rows] > 0, _BLANK_LINE_IN_BLOCK, _LINE_IN_BLOCK) + _DEPTH * depth
        )
        # After the mark of a fence or the names of a table's columns, and before the last mark.
        costs[lines.first[first + 1]] = _TORN
        costs[lines.first[last]] = max(int(costs[lines.first[last]]), _TORN - 1)


def keep_whole(
    words: Words, lines: Lines, structure: Structure, costs: Costs, room: tuple[int, int]
) -> None:
    """Let no border stand in a block that fits a chunk.

    Args:
        words: of the text.
        lines: of the text.
        structure: of the text.
        costs: are changed.
        room: measures and characters of a chunk.
    """
    if structure.markdown is None:
        return
    total = np.append(0, np.cumsum(words.sizes))
    for first, last in structure.markdown.blocks:
        begin, end = int(lines.first[first]), int(lines.last[last])
        fits = total[end + 1] - total[begin] <= room[0]
        if fits and words.ends[end] - words.starts[begin] <= room[1]:
            costs[begin + 1 : end + 1] = KEPT
