"""The lines of a text that are not blank, and how they stand to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from embedmill.chunkers.marks import CLOSERS, OPENERS, SENTENCE_MARKS, Codes, Flags, Marks
from embedmill.chunkers.words import Integers, Words

_LF, _CR, _TAB = 10, 13, 9
_ENDS_SENTENCE, _CLOSES, _OPENS = Marks(SENTENCE_MARKS), Marks(CLOSERS), Marks(OPENERS)
# Longer lines are not what an editor wraps at.
_WIDEST_WRAP = 130


@dataclass(frozen=True, slots=True)
class Lines:
    """Arrays with one entry for each line that has a word.

    Attributes:
        starts: offset of the line.
        first: index of its first word.
        last: index of its last word.
        indent: blanks before the first word; a tab counts as four.
        gap: blank lines before it.
        opening: code point that its first word begins with.
        wrapped: it only goes on what the line before it had no room for.
    """

    starts: Integers
    first: Integers
    last: Integers
    indent: Integers
    gap: Integers
    opening: Codes
    wrapped: Flags

    def __len__(self) -> int:
        return len(self.starts)


def lines_of(words: Words) -> Lines:
    """Lines end with a line feed, a carriage return, or both."""
    codes = words.codes
    starts = _line_starts(codes)
    first_of_all = np.searchsorted(words.starts, starts)
    beyond = np.append(first_of_all[1:], len(words))
    solid = np.flatnonzero(beyond > first_of_all)
    first, last = first_of_all[solid], beyond[solid] - 1
    gap = np.diff(solid, prepend=-1) - 1
    return Lines(
        starts=starts[solid],
        first=first,
        last=last,
        indent=_indents(codes, starts[solid], words.starts[first]),
        gap=gap,
        opening=codes[words.starts[first]],
        wrapped=_wrapped(words, first, last, gap),
    )


def ends_sentence(words: Words) -> Flags:
    """Which words end a sentence, by their marks and by the word after them."""
    codes = words.codes
    last = codes[words.ends - 1]
    closed = _CLOSES(last)
    before = codes[np.maximum(words.ends - 2, words.starts)]
    ends = _ENDS_SENTENCE(np.where(closed, before, last))
    ends[:-1] &= _begins_sentence(codes[words.starts[1:]])
    return ends


def ends_with(words: Words, marks: Marks) -> Flags:
    """Which words end with one of some marks."""
    return marks(words.codes[words.ends - 1])


def _begins_sentence(codes: Codes) -> Flags:
    """Not with a small letter of ASCII, nor with a mark that goes on a sentence."""
    small = (codes >= ord("a")) & (codes <= ord("z"))
    marks = (codes < 128) & ~_OPENS(codes) & ~_is_alphanumeric(codes)
    return ~(small | marks)


def _is_alphanumeric(codes: Codes) -> Flags:
    digits = (codes >= ord("0")) & (codes <= ord("9"))
    letters = ((codes | 32) >= ord("a")) & ((codes | 32) <= ord("z"))
    return digits | letters


def _line_starts(codes: Codes) -> Integers:
    ends = (codes == _LF) | (codes == _CR)
    if len(codes) > 1:
        # Between the two of CRLF no line ends.
        ends[:-1] &= ~((codes[:-1] == _CR) & (codes[1:] == _LF))
    return np.append(0, np.flatnonzero(ends) + 1)


def _indents(codes: Codes, starts: Integers, words: Integers) -> Integers:
    indents = words - starts
    tabs = np.flatnonzero((indents > 0) & (codes[starts] == _TAB))
    for line in tabs:
        before = codes[starts[line] : words[line]]
        indents[line] = len(before) + 3 * int((before == _TAB).sum())
    return indents


def _wrapped(words: Words, first: Integers, last: Integers, gap: Integers) -> Flags:
    """A line that ended although the next word would have fit was ended by its writer.

    So was every line of a block whose lines hardly ever begin as a sentence goes on.
    """
    count = len(first)
    wrapped = np.zeros(count, np.bool_)
    if count < 2:
        return wrapped
    blocks = np.flatnonzero(np.append(True, gap[1:] > 0))
    lines = np.diff(np.append(blocks, count))
    widths = words.ends[last] - words.starts[first]
    widest = np.repeat(np.maximum.reduceat(widths, blocks), lines)
    goes_on = _goes_on(words.codes[words.starts[first]])
    going_on = np.repeat(np.add.reduceat(goes_on.astype(np.int64), blocks), lines)
    next_word = (words.ends - words.starts)[first[1:]]
    no_room = widths[:-1] + 1 + next_word > widest[1:]
    in_prose = 4 * going_on >= np.repeat(lines, lines)
    wrapped[1:] = no_room & in_prose[1:] & (gap[1:] == 0) & (widest[1:] <= _WIDEST_WRAP)
    return wrapped


def _goes_on(codes: Codes) -> Flags:
    """Small letters, and all of other scripts, which may have no others."""
    return ((codes >= ord("a")) & (codes <= ord("z"))) | (codes >= 128)
