"""The words of a text: where they stand and how many tokens each of them is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import regex

from embedmill.chunkers.marks import (
    WIDE_CLAUSE_MARKS,
    WIDE_SENTENCE_MARKS,
    Codes,
    Flags,
    Marks,
)
from embedmill.errors import PermanentError
from embedmill.tokenizer import BLANKS, WordMeasure
from embedmill.word_measures import words_of

Integers = npt.NDArray[np.int64]

_WORD_AND_BLANKS = re.compile(r"[ \t\n\r]*[^ \t\n\r]+")
_CHARACTER = regex.compile(r"\X")
# What a long word is parted at: after marks, which are sentence marks where there are no blanks.
_PART = regex.compile(rf"\X*?[{WIDE_SENTENCE_MARKS}{WIDE_CLAUSE_MARKS}.!?,;:|/&)\]}}>]+|\X+")
# From here on a character may join what stands before it.
_FIRST_MARK = 0x0300
# 16 characters a token: words are shorter, and Chinese has one or two. A model may take a longer
# run for one unknown token, however long it is.
CHARACTERS_PER_TOKEN = 16
_WHOLE_WORD = 16


@dataclass(frozen=True, slots=True)
class Words:
    """Of one stretch of text.

    Attributes:
        starts: offsets of the words, in code points.
        ends: exclusive.
        sizes: measures; none is above the limit that it was made for.
        inner: begins within a word that was too long.
        codes: of the code points of the text.
    """

    starts: Integers
    ends: Integers
    sizes: Integers
    inner: Flags
    codes: Codes

    def __len__(self) -> int:
        return len(self.starts)


class WordReader:
    """Finds the words of texts.

    Args:
        measure: how long words are.
        max_tokens: of a chunk.
    """

    def __init__(self, measure: WordMeasure, max_tokens: int) -> None:
        self.unit = measure.unit
        self._measure = measure
        self._max_tokens = max_tokens
        self._limit = max_tokens * measure.unit
        # Parts of this size fill a chunk to three quarters at least; in small chunks words are
        # left whole where they fit, for parts count more than the whole.
        self._part = max(self._limit // 4, min(self._limit, _WHOLE_WORD * measure.unit))
        self._longest = max(CHARACTERS_PER_TOKEN * max_tokens, 1024)

    def read(self, text: str) -> Words:
        """All words, long ones in parts.

        Raises:
            PermanentError: one code point alone exceeds the limit.
        """
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        starts, ends = _spans(codes)
        found = _WORD_AND_BLANKS.findall(text) if self._measure.with_blanks else words_of(text)
        sizes = np.array(self._measure(found), np.int64)
        joined = _joined(text, codes, starts)
        if joined.any():
            starts, ends, sizes = _merged(starts, ends, sizes, joined)
        words = Words(starts, ends, sizes, np.zeros(len(starts), np.bool_), codes)
        long = np.flatnonzero((sizes > self._part) | (ends - starts > self._longest))
        return self._parted(text, words, long) if len(long) else words

    def _parted(self, text: str, words: Words, long: Integers) -> Words:
        """With the words at ``long`` in parts."""
        parts = [
            self._parts(text, (int(words.starts[at]), int(words.ends[at])), int(words.sizes[at]))
            for at in long
        ]
        counts = np.ones(len(words), np.int64)
        counts[long] = [len(found) for found in parts]
        first = np.cumsum(counts) - counts
        starts, ends, sizes = (
            np.repeat(column, counts) for column in (words.starts, words.ends, words.sizes)
        )
        inner = np.repeat(words.inner, counts)
        for at, found in zip(first[long], parts, strict=True):
            stretch = slice(int(at), int(at) + len(found))
            starts[stretch] = [start for start, _, _ in found]
            ends[stretch] = [end for _, end, _ in found]
            sizes[stretch] = [size for _, _, size in found]
            inner[at + 1 : at + len(found)] = True
        return Words(starts, ends, sizes, inner, words.codes)

    def _parts(self, text: str, span: tuple[int, int], size: int) -> list[tuple[int, int, int]]:
        """Start, end and size of the parts of one long word."""
        start, end = span
        if size <= self._part and end - start <= self._longest:
            return [(start, end, size)]
        borders = [start + found.end() for found in _PART.finditer(text[start:end])]
        found: list[tuple[int, int, int]] = []
        for part_start, part_end, part_size in self._sized(text, [start, *borders]):
            if part_size > self._part or part_end - part_start > self._longest // 4:
                found += self._even(text, part_start, part_end, part_size)
            else:
                found.append((part_start, part_end, part_size))
        return found

    def _even(self, text: str, start: int, end: int, size: int) -> list[tuple[int, int, int]]:
        """Parts of about the same number of characters, each under the limit."""
        characters = [start, *(start + each.end() for each in _CHARACTER.finditer(text[start:end]))]
        count = len(characters) - 1
        if count == 1:
            return (
                [(start, end, size)]
                if size <= self._limit
                else self._code_points(text, span=(start, end))
            )
        wanted = max(2, -(-size // self._part), -(-(end - start) // max(1, self._longest // 4)))
        step = max(1, count // wanted)
        borders = [*characters[:-1:step], end]
        found: list[tuple[int, int, int]] = []
        for part in self._sized(text, borders):
            found += [part] if part[2] <= self._limit else self._even(text, *part)
        return found

    def _code_points(self, text: str, span: tuple[int, int]) -> list[tuple[int, int, int]]:
        parts = self._sized(text, range(span[0], span[1] + 1))
        excess = max(size for _, _, size in parts) - self._limit
        if excess > 0:
            raise PermanentError(
                f"one character exceeds {self._max_tokens} tokens by {-(-excess // self.unit)}",
                code="over-limit",
            )
        return parts

    def _sized(self, text: str, borders: Sequence[int]) -> list[tuple[int, int, int]]:
        spans = list(pairwise(borders))
        sizes = self._measure([text[start:end] for start, end in spans])
        per_character = self.unit
        return [
            # A run that the model takes for one token still has to be kept by a store.
            (start, end, max(size, per_character * (end - start) // CHARACTERS_PER_TOKEN))
            for (start, end), size in zip(spans, sizes, strict=True)
        ]


_IS_BLANK = Marks(BLANKS)


def _spans(codes: Codes) -> tuple[Integers, Integers]:
    """Starts and ends of what stands between blanks."""
    solid = np.zeros(len(codes) + 2, np.int8)
    solid[1:-1] = ~_IS_BLANK(codes)
    change = np.flatnonzero(np.diff(solid))
    return change[::2], change[1::2]


def _joined(text: str, codes: Codes, starts: Integers) -> Flags:
    """Which words join the blank before them to one character: they begin with a mark."""
    joined = np.zeros(len(starts), np.bool_)
    for at in np.flatnonzero((codes[starts] >= _FIRST_MARK) & (starts > 0)):
        start = int(starts[at])
        found = _CHARACTER.match(text, start - 1)
        joined[at] = found is not None and found.end() > start
    return joined


def _merged(
    starts: Integers, ends: Integers, sizes: Integers, joined: Flags
) -> tuple[Integers, Integers, Integers]:
    """Words that join what stands before them, as one with the word there."""
    joined = joined.copy()
    joined[0] = False
    kept = np.flatnonzero(~joined)
    last = np.append(kept[1:] - 1, len(starts) - 1)
    return starts[kept], ends[last], np.add.reduceat(sizes, kept)
