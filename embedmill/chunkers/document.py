"""One chunk per document."""

from __future__ import annotations

from collections.abc import Sequence

from embedmill.chunker import Chunk
from embedmill.chunkers.characters import require_unicode
from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.recipe import ChunkingRecipe
from embedmill.tokenizer import TokenWindow
from embedmill.word_measures import counting


class DocumentChunker:
    """Makes each document one chunk, whole and untrimmed."""

    def __init__(self, recipe: ChunkingRecipe, window: TokenWindow) -> None:
        self.recipe = recipe
        self._window = window
        self._count = counting(window)

    def chunk(self, documents: Sequence[ParsedDocument]) -> list[list[Chunk]]:
        """Return one chunk per document, none for a blank one.

        Raises:
            PermanentError: a document exceeds the window and the recipe says ``refuse``, or its
                text is no Unicode. Of several documents it does not say which: ask one by one.
        """
        texts = [document.text for document in documents]
        for text in texts:
            require_unicode(text)
        counts = self._count(texts)
        return [self._chunks(text, count) for text, count in zip(texts, counts, strict=True)]

    def _chunks(self, text: str, count: int) -> list[Chunk]:
        if not text or text.isspace():
            return []
        size = self._window.size
        if count > size and self.recipe.overflow == "refuse":
            raise PermanentError(
                f"the document has {count} tokens, prompt and special tokens included; the model "
                f"reads {size}",
                code="over-window",
                hint="set chunker.overflow to truncate, or choose a splitting chunker",
            )
        return [Chunk(text, 0, len(text), count, (), count > size)]
