"""Measures of words: exact sums where a tokenizer parts at blanks, near ones for any other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, pairwise

import numpy as np

from embedmill.text_pieces import TextPieces
from embedmill.tokenizer import (
    BLANKS,
    BulkCounter,
    MeasuringCounter,
    TokenCounter,
    TokenWindow,
    WordMeasure,
)

# Known words, some 15 MB; then the cache starts anew.
_CACHE_LIMIT = 100_000
# Longer words hardly come twice: rules of '=', base64, minified code.
_LONGEST_WORD = 128
# What stands before a word while it is measured: some tokenizers treat the first word of a text
# in another way than the others.
_ANCHOR = "a"
_WORD = re.compile(rf"[^{BLANKS}]+")
# Text pieces end at these, words do not.
_PARTING_PIECES_ONLY = "\v\f"
_OTHER_BLANKS = "".join(
    chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) not in BLANKS
)


def words_of(text: str) -> list[str]:
    """What stands between blanks; found twice as fast where there are no blanks of other kinds."""
    if any(blank in text for blank in _OTHER_BLANKS):
        return _WORD.findall(text)
    return text.split()


def adds_up(window: TokenWindow, measure: WordMeasure) -> bool:
    """Whether the tokens of a text with its prompt are those of its words and a fixed number."""
    prompt = window.document_prompt
    return measure.adds_up and (not prompt or prompt[-1] in BLANKS)


def counting(window: TokenWindow) -> Callable[[Sequence[str]], list[int]]:
    """Counts as the window does, by words where these add up: ten times as fast."""
    counter = window.counter
    if isinstance(counter, BulkCounter):
        return lambda texts: counter.count_together(window.prompted(texts))
    measure = word_measure(counter)
    if not adds_up(window, measure):
        return window.count
    overhead = window.overhead

    def count(texts: Sequence[str]) -> list[int]:
        if any(blank in text for text in texts for blank in _PARTING_PIECES_ONLY):
            return [overhead + sum(measure(words_of(text))) for text in texts]
        pieces = TextPieces.of(texts)
        sizes = np.asarray(measure(pieces.distinct), np.int64)
        counts: list[int] = (overhead + pieces.sums(sizes)).tolist()
        return counts

    return count


def word_measure(counter: TokenCounter) -> WordMeasure:
    """The counter's own measure, or one that works with any counter."""
    if isinstance(counter, MeasuringCounter):
        return counter.word_measure()
    return AnchoredWords(counter)


class CachedWords:
    """Measures each word once.

    A word of English is looked up in 50 ns; tokenising it takes 10 us.

    Args:
        lengths_of: tokens of words, special ones not counted; all new words of a text at once.
        unit: measures that make one token.
        with_blanks: words come with the blanks before them.
        adds_up: see :class:`~embedmill.tokenizer.WordMeasure`.
    """

    def __init__(
        self,
        lengths_of: Callable[[list[str]], list[int]],
        *,
        unit: int = 1,
        with_blanks: bool = False,
        adds_up: bool = True,
    ) -> None:
        self.unit = unit
        self.with_blanks = with_blanks
        self.adds_up = adds_up
        self._lengths_of = lengths_of
        self._known: dict[str, int] = {}

    def __call__(self, words: Sequence[str]) -> Sequence[int]:
        """The measure of each word."""
        found = list(map(self._known.get, words))
        if None not in found:
            return found  # type: ignore[return-value] # there is no None
        places = list(_places(found))
        new = list({words[at]: 0 for at in places})
        if len(self._known) > _CACHE_LIMIT:
            self._known.clear()
        lengths = dict(zip(new, self._lengths_of(new), strict=True))
        self._known |= {w: n for w, n in lengths.items() if len(w) <= _LONGEST_WORD}
        for at in places:
            found[at] = lengths[words[at]]
        return found  # type: ignore[return-value] # there is no None any more


def _places(found: list[int | None]) -> Iterator[int]:
    """Where there is None; most often in few places of many."""
    at = -1
    with suppress(ValueError):
        while True:
            at = found.index(None, at + 1)
            yield at


class PartedWords:
    """Tokens of words that part at some marks, each part counted once.

    In technical text most new words are known ones with new marks at them: this makes counting
    them ten times as fast.

    Args:
        lengths_of: tokens of texts.
        parts: finds all parts of a word.
    """

    def __init__(
        self, lengths_of: Callable[[list[str]], list[int]], parts: re.Pattern[str]
    ) -> None:
        self._of_part = CachedWords(lengths_of)
        self._parts = parts

    def __call__(self, words: list[str]) -> list[int]:
        """Tokens of each word."""
        parted = list(map(self._parts.findall, words))
        lengths = list(accumulate(self._of_part(list(chain.from_iterable(parted))), initial=0))
        ends = list(accumulate(map(len, parted), initial=0))
        return [lengths[end] - lengths[start] for start, end in pairwise(ends)]


class AnchoredWords:
    """Words of any counter, as they count in the middle of a text.

    Near, not exact: what a tokenizer makes of a word may depend on what stands before it.
    """

    unit = 1
    with_blanks = True
    adds_up = False

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._special, self._anchor = counter.count(["", _ANCHOR])
        self._words = CachedWords(self._lengths)

    def __call__(self, words: Sequence[str]) -> Sequence[int]:
        """The measure of each word."""
        return self._words(words)

    def _lengths(self, words: list[str]) -> list[int]:
        anchored = [word[:1] in BLANKS for word in words]
        texts = [_ANCHOR * after + word for word, after in zip(words, anchored, strict=True)]
        base = (self._special, self._anchor)
        counts = self._counter.count(texts)
        return [max(0, count - base[after]) for count, after in zip(counts, anchored, strict=True)]
