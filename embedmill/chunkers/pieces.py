"""Cuts a text into pieces that the splitting library takes in stride.

Some texts cost the library time in the square of their length (deeply nested quotations or
expressions: 200 KB took 17 s and more), and an unbroken run may be one unknown token for a model
however long it is. So blank runs part a text, unbroken runs are cut, and no piece is longer than a
limit. A border between pieces always is a border between chunks, without overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from semantic_text_splitter import TextSplitter

from embedmill.chunkers.characters import Span, whole_characters
from embedmill.chunkers.headings import Section

# Longer runs of blanks part a text: no reader misses them, and a store would have to keep them.
_LONGEST_BLANK = 256


class PieceCutter:
    """Cuts texts for chunks of at most ``max_tokens``."""

    def __init__(self, max_tokens: int) -> None:
        # 64 characters a token are some 15 chunks of English. A piece of 16 KB took 0.5 s at worst.
        self._longest = max(64 * max_tokens, 4096)
        # 16 characters a token: words are shorter, and Chinese has one or two.
        self._longest_run = max(16 * max_tokens, 1024)
        self._splitter = TextSplitter(self._longest, trim=False)
        self._run_splitter = TextSplitter(self._longest_run, trim=False)
        self._run = re.compile(
            rf"(?<!\s)\s{{{_LONGEST_BLANK + 1},}}|(?<!\S)\S{{{self._longest_run + 1},}}"
        )

    def cut(self, text: str, sections: Sequence[Section] = ()) -> list[Span]:
        """Spans in order that hold all that is not blank; long pieces part at ``sections``."""
        spans: list[Span] = []
        for start, end in self._between_runs(text):
            if end - start <= self._longest:
                spans.append((start, end))
            else:
                spans.extend(self._shorter(text, (start, end), sections))
        return [(start, end) for start, end in spans if text[start:end].strip()]

    def _between_runs(self, text: str) -> Iterator[Span]:
        done = 0
        for run in self._run.finditer(text):
            yield done, run.start()
            if not run.group().isspace():
                yield from self._parts(text, run.span(), self._run_splitter)
            done = run.end()
        yield done, len(text)

    def _shorter(self, text: str, span: Span, sections: Sequence[Section]) -> Iterator[Span]:
        start, end = span
        borders = [each.start for each in sections if start < each.start < end]
        last = start
        for border in [*borders, end]:
            if border - start > self._longest and last > start:
                yield from self._parts(text, (start, last), self._splitter)
                start = last
            last = border
        yield from self._parts(text, (start, end), self._splitter)

    def _parts(self, text: str, span: Span, splitter: TextSplitter) -> list[Span]:
        start, end = span
        if end - start <= self._longest_run:
            return [span]
        part = text[start:end]
        found = [(at, at + len(each)) for at, each in splitter.chunk_indices(part)]
        # A character of more code points than a whole run is nobody's character.
        whole = whole_characters(part, found, lambda each: len(each) > self._longest_run)
        return [(start + begin, start + finish) for begin, finish in whole]
