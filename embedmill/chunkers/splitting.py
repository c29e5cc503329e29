"""Chunks at the borders of a text's structure, exact in the model's own tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from embedmill.chunker import Chunk
from embedmill.chunkers.characters import (
    Span,
    require_unicode,
    spans_by_characters,
    whole_characters,
)
from embedmill.chunkers.headings import Section, path_at, sections_of
from embedmill.chunkers.library import Splitter, Structure, new_splitter
from embedmill.chunkers.pieces import PieceCutter
from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.recipe import ChunkingRecipe
from embedmill.tokenizer import TokenWindow

# Characters per token up to which a piece may fit as a whole: it is counted before it is split,
# which costs a tenth of splitting it.
_CHARACTERS_PER_TOKEN = 8
_BLANK_LINES = re.compile(r"(?:[^\S\r\n]*(?:\r\n|\r|\n))*")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a document that is split on its own."""

    text: str
    offset: int
    structure: Structure


class SplittingChunker:
    """Cuts text, Markdown and Python.

    Chunks are trimmed: the blank text between two of them belongs to none. The overlap is at most
    what the recipe says, in whole words or sentences; there is none where a text longer than 64
    characters for each token of a chunk was parted first, see :mod:`embedmill.chunkers.pieces`.
    """

    def __init__(self, recipe: ChunkingRecipe, window: TokenWindow) -> None:
        self.recipe = recipe
        self._window = window
        self._limit = window.overhead + recipe.max_tokens
        self._cutter = PieceCutter(recipe.max_tokens)
        self._splitters: dict[tuple[Structure, int], Splitter] = {}

    def chunk(self, documents: Sequence[ParsedDocument]) -> list[list[Chunk]]:
        """Return the chunks of each document; see :class:`~embedmill.chunker.Chunker`.

        Raises:
            PermanentError: a text is no Unicode, or one code point of it alone exceeds
                ``max_tokens``. Of several documents it does not say which: ask one by one.
        """
        sections = [self._sections(document) for document in documents]
        pieces: list[_Piece] = []
        owners: list[int] = []
        for index, document in enumerate(documents):
            found = self._pieces(document, sections[index])
            pieces.extend(found)
            owners.extend([index] * len(found))
        chunks: list[list[Chunk]] = [[] for _ in documents]
        for owner, piece, spans in zip(owners, pieces, self._split(pieces), strict=True):
            for (start, end), count in spans:
                at = piece.offset + start
                chunks[owner].append(
                    Chunk(
                        text=piece.text[start:end],
                        start=at,
                        end=piece.offset + end,
                        token_count=count,
                        headings=path_at(sections[owner], at),
                        truncated=count > self._window.size,
                    )
                )
        return chunks

    def _structure(self, document: ParsedDocument) -> Structure:
        kind = document.format if self.recipe.splitter == "auto" else self.recipe.splitter
        if kind == "code":
            return "python" if document.language == "python" else "text"
        return "markdown" if kind == "markdown" else "text"

    def _sections(self, document: ParsedDocument) -> list[Section]:
        require_unicode(document.text)
        return sections_of(document.text) if self._structure(document) == "markdown" else []

    def _pieces(self, document: ParsedDocument, sections: list[Section]) -> list[_Piece]:
        structure = self._structure(document)
        text = document.text
        return [
            _Piece(text[start:end], start, structure)
            for start, end in self._cutter.cut(text, sections)
        ]

    def _split(self, pieces: list[_Piece]) -> list[list[tuple[Span, int]]]:
        """Spans of each piece with their token counts."""
        done: dict[int, list[tuple[Span, int]]] = {}
        short = [
            index
            for index, piece in enumerate(pieces)
            if len(piece.text) <= _CHARACTERS_PER_TOKEN * self.recipe.max_tokens
        ]
        self._measure(pieces, {index: [_trimmed(pieces[index])] for index in short}, done)
        capacity, step = self.recipe.max_tokens, 1
        while left := [index for index in range(len(pieces)) if index not in done]:
            if capacity < 1:
                self._cut_anywhere(pieces, left, done)
                break
            proposed = self._proposed(pieces, left, capacity)
            excess = self._measure(pieces, proposed, done)
            # A cut can cost a token or two, and prompt and text may join; then the piece is split
            # again for less, in steps that grow, so that this ends soon.
            capacity, step = capacity - step * excess, step * 2
        return [done[index] for index in range(len(pieces))]

    def _measure(
        self,
        pieces: list[_Piece],
        proposed: dict[int, list[Span]],
        done: dict[int, list[tuple[Span, int]]],
    ) -> int:
        """Move to ``done`` what fits the limit; return the largest excess of the rest."""
        texts = [
            pieces[index].text[start:end]
            for index, spans in proposed.items()
            for start, end in spans
        ]
        counts = iter(self._window.count(texts))
        worst = 0
        for index, spans in proposed.items():
            counted = [(span, next(counts)) for span in spans]
            excess = max((count for _, count in counted), default=0) - self._limit
            if excess <= 0:
                done[index] = counted
            worst = max(worst, excess)
        return worst

    def _cut_anywhere(
        self, pieces: list[_Piece], indices: list[int], done: dict[int, list[tuple[Span, int]]]
    ) -> None:
        spans = {
            index: spans_by_characters(pieces[index].text, lambda text: not self._exceeds(text))
            for index in indices
        }
        excess = self._measure(pieces, spans, done)
        if excess:
            raise PermanentError(
                f"one character exceeds {self.recipe.max_tokens} tokens by {excess}",
                code="over-limit",
            )

    def _proposed(
        self, pieces: list[_Piece], indices: list[int], capacity: int
    ) -> dict[int, list[Span]]:
        """Ask the library, all pieces of one structure at once: it uses every core."""
        spans: dict[int, list[Span]] = {}
        for structure in dict.fromkeys(pieces[index].structure for index in indices):
            mine = [index for index in indices if pieces[index].structure == structure]
            splitter = self._splitter(structure, capacity)
            found = splitter.chunk_all_indices([pieces[index].text for index in mine])
            for index, cuts in zip(mine, found, strict=True):
                own = [(at, at + len(text)) for at, text in cuts]
                spans[index] = whole_characters(pieces[index].text, own, self._exceeds)
        return spans

    def _splitter(self, structure: Structure, capacity: int) -> Splitter:
        key = (structure, capacity)
        if key not in self._splitters:
            overlap = min(self.recipe.overlap, capacity - 1)
            sizer = self._window.counter.sizer
            self._splitters[key] = new_splitter(structure, sizer, capacity, overlap)
        return self._splitters[key]

    def _exceeds(self, text: str) -> bool:
        return self._window.count([text])[0] > self._limit


def _trimmed(piece: _Piece) -> Span:
    """Without blanks around; structure may depend on how far its first line is indented."""
    text = piece.text
    end = len(text.rstrip())
    if piece.structure == "text":
        return len(text) - len(text.lstrip()), end
    found = _BLANK_LINES.match(text)
    return found.end() if found else 0, end
