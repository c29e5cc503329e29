"""The contract of a chunker: a document to chunks under a token limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from embedmill.parser import ParsedDocument
from embedmill.recipe import ChunkingRecipe


class Chunk(NamedTuple):
    """A piece of a document; its values stand in the order of a chunk row's.

    Attributes:
        text: exactly ``document.text[start:end]``; never blank.
        start: offset in code points.
        end: offset in code points, exclusive.
        token_count: in the model's own tokens, special tokens and prompt included; for a truncated
            chunk the whole count, above the window.
        headings: titles of the sections it stands in, outermost first.
        truncated: the embedder will not see the end of it.
    """

    text: str
    start: int
    end: int
    token_count: int
    headings: tuple[str, ...] = ()
    truncated: bool = False


class Chunker(Protocol):
    """Cuts documents. Deterministic: equal text and recipe give equal chunks."""

    recipe: ChunkingRecipe

    def chunk(self, documents: Sequence[ParsedDocument]) -> list[list[Chunk]]:
        """Return the chunks of each document, documents and chunks in order.

        Starts and ends never go back; all that is not blank is covered. No chunk exceeds the
        model's window, prompt included, unless the recipe says ``truncate``. A blank document has
        no chunks.

        Raises:
            PermanentError: only from a sequence of one document: it cannot be cut under the limit
                (``document`` splitter without ``truncate``). With several documents the caller
                asks again one by one.
        """
        ...
