"""Chunks at the borders that a reader would choose; every word is tokenised once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embedmill.chunker import Chunk
from embedmill.chunkers.characters import (
    Span,
    require_unicode,
    spans_by_characters,
    whole_characters,
)
from embedmill.chunkers.cutting import Cut, Room
from embedmill.chunkers.headings import Section, path_at
from embedmill.chunkers.stretches import Stretch, beginning, cut_off, read_stretch
from embedmill.chunkers.words import WordReader
from embedmill.parser import ParsedDocument, TextFormat
from embedmill.recipe import ChunkingRecipe
from embedmill.tokenizer import BLANKS, TokenWindow
from embedmill.word_measures import adds_up, word_measure

# A document is read in stretches of so many code points, so that memory is bounded; 30 bytes each.
_STRETCH = 1 << 18
# So many are read before chunks are counted again, where that is needed.
_TOGETHER = 1 << 20
# A store has to keep what a model takes for a few tokens.
_CHARACTERS_PER_TOKEN = 64
# How often a stretch is cut again when some chunks turn out to be too large.
_ROUNDS = 6


@dataclass(slots=True)
class _Part:
    """One stretch of one document on its way.

    Attributes:
        owner: index of the document.
        offset: of the stretch in the document.
        counted: spans within the stretch, with their tokens; special ones and prompt included.
    """

    owner: int
    offset: int
    stretch: Stretch
    counted: list[tuple[Span, int]]


class TokenBorderChunker:
    """Cuts text, Markdown and code.

    The words of a text are found and measured once. Where the tokenizer parts a text at blanks,
    their sums are the tokens of every chunk; else the chunks are counted once more, exactly. The
    cheapest borders over a whole text are chosen, see :mod:`embedmill.chunkers.cutting`.

    Chunks are trimmed: the blank text between two of them belongs to none. The overlap is at most
    what the recipe says, in whole lines or sentences where they fit, else in words; there is none
    where a section begins.
    """

    def __init__(self, recipe: ChunkingRecipe, window: TokenWindow) -> None:
        self.recipe = recipe
        self._window = window
        self._overhead = window.overhead
        self._limit = self._overhead + recipe.max_tokens
        measure = word_measure(window.counter)
        self._adds_up = adds_up(window, measure)
        self._reader = WordReader(measure, recipe.max_tokens)
        self._room = Room(
            size=recipe.max_tokens * measure.unit,
            characters=max(_CHARACTERS_PER_TOKEN * recipe.max_tokens, 4096),
            overlap=recipe.overlap * measure.unit,
        )

    def chunk(self, documents: Sequence[ParsedDocument]) -> list[list[Chunk]]:
        """Return the chunks of each document; see :class:`~embedmill.chunker.Chunker`.

        Raises:
            PermanentError: a text is no Unicode, or one code point of it alone exceeds
                ``max_tokens``. Of several documents it does not say which: ask one by one.
        """
        chunks: list[list[Chunk]] = [[] for _ in documents]
        titles: list[_Titles] = [_Titles() for _ in documents]
        waiting: list[_Part] = []
        read = 0
        for part in self._parts(documents):
            waiting.append(part)
            read += len(part.stretch.text)
            if read >= _TOGETHER:
                self._finish(waiting, titles, chunks)
                waiting, read = [], 0
        self._finish(waiting, titles, chunks)
        return chunks

    def _structure(self, document: ParsedDocument) -> TextFormat:
        kind = document.format if self.recipe.splitter == "auto" else self.recipe.splitter
        match kind:
            case "markdown" | "code":
                return kind
            case _:
                return "text"

    def _parts(self, documents: Sequence[ParsedDocument]) -> Iterator[_Part]:
        for owner, document in enumerate(documents):
            require_unicode(document.text)
            structure = self._structure(document)
            offset, length = 0, len(document.text)
            while offset < length:
                text = document.text[offset : offset + _STRETCH]
                if not text.strip(BLANKS):
                    offset += len(text)
                    continue
                stretch = read_stretch(text, structure, self._reader, self._room)
                if offset + len(text) < length:
                    at = beginning(stretch)
                    following = (
                        int(stretch.words.starts[at]) if at < len(stretch.words) else len(text)
                    )
                    stretch = cut_off(stretch, at) if at else stretch
                else:
                    following = len(text)
                if len(stretch.words):
                    yield _Part(owner, offset, stretch, [])
                offset += following

    def _finish(self, parts: list[_Part], titles: list[_Titles], chunks: list[list[Chunk]]) -> None:
        self._settle(parts)
        for part in parts:
            sections = titles[part.owner].sections(part)
            text = part.stretch.text
            for (start, end), count in part.counted:
                chunks[part.owner].append(
                    Chunk(
                        text=text[start:end],
                        start=part.offset + start,
                        end=part.offset + end,
                        token_count=count,
                        headings=path_at(sections, start),
                        truncated=count > self._window.size,
                    )
                )

    def _settle(self, parts: list[_Part]) -> None:
        """Cut, count what the words do not say, and cut again what is too large."""
        for last in [False] * _ROUNDS + [True]:
            drafts = [self._spans(part.stretch) for part in parts]
            unknown = [
                part.stretch.text[slice(*span)]
                for part, draft in zip(parts, drafts, strict=True)
                for span, _, count in draft
                if count < 0
            ]
            counts = iter(self._window.count(unknown) if unknown else ())
            again = []
            for part, draft in zip(parts, drafts, strict=True):
                counted = [
                    (span, chunk, next(counts) if count < 0 else count)
                    for span, chunk, count in draft
                ]
                part.counted = [(span, count) for span, _, count in counted]
                large = [each for each in counted if each[2] > self._limit]
                if large and last:
                    part.counted = self._forced(part)
                elif large:
                    for _, chunk, count in large:
                        size = (count - self._overhead) * self._reader.unit
                        part.stretch.enlarge(chunk, size, self._room)
                    again.append(part)
            if not again:
                return
            parts = again

    def _spans(self, stretch: Stretch) -> list[tuple[Span, Cut, int]]:
        """Each chunk with its tokens, -1 where they have to be counted."""
        cuts = stretch.cuts(self._room)
        found = {stretch.span(each): each for each in cuts}
        whole = whole_characters(stretch.text, found, self._exceeds)
        known = []
        chunk = cuts[0]
        for span in whole:
            moved = span not in found
            # What became of a border that was moved is near enough the chunk before.
            chunk = found.get(span, chunk)
            exact = self._adds_up and not moved and stretch.is_whole(chunk, span)
            known.append((span, chunk, self._overhead + stretch.size(chunk) if exact else -1))
        return known

    def _forced(self, part: _Part) -> list[tuple[Span, int]]:
        """With what is still too large cut between any two characters."""
        spans: list[Span] = []
        for (start, end), count in part.counted:
            if count <= self._limit:
                spans.append((start, end))
                continue
            found = spans_by_characters(
                part.stretch.text[start:end], lambda text: not self._exceeds(text)
            )
            spans += [(start + begin, start + finish) for begin, finish in found]
        counts = self._window.count([part.stretch.text[slice(*span)] for span in spans])
        return list(zip(spans, counts, strict=True))

    def _exceeds(self, text: str) -> bool:
        return self._window.count([text])[0] > self._limit


class _Titles:
    """The headings of a document while its stretches come one by one."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def sections(self, part: _Part) -> list[Section]:
        """Those of a stretch; its beginning goes on what the one before ended with."""
        found = [Section(0, self._path())]
        for offset, level, title in part.stretch.titles:
            self._open = [each for each in self._open if each[0] < level]
            self._open.append((level, title))
            found.append(Section(offset, self._path()))
        return found

    def _path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open if title)
