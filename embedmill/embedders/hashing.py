"""Vectors from hashed words: no model, equal on every machine, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from embedmill.embedder import EmbeddedTexts, Role, Vectors, checked_rows
from embedmill.embedders.word_tokenizer import Pieces, WordTokenizer, words_of
from embedmill.errors import PermanentError
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.settings import HashingEmbedderSettings
from embedmill.text_pieces import Integers, TextPieces

_Codes: TypeAlias = npt.NDArray[np.int64]
# Codes of marks that are no words; they are not hashed.
_NO_WORD = -1
# Buckets counted at once: 32 MB of float64.
_SLICE_CELLS = 4_194_304


def hashing_recipe(settings: HashingEmbedderSettings, metric: Metric) -> EmbeddingRecipe:
    """All that decides a hashed vector."""
    return EmbeddingRecipe(
        provider="hashing",
        model="hashing",
        revision=WordTokenizer.fingerprint,
        dimension=settings.dimension,
        dtype="float32",
        normalise=True,
        document_prompt=settings.document_prompt,
        query_prompt=settings.query_prompt,
        max_tokens=settings.max_tokens,
        metric=metric,
    )


def _code(text: str) -> int:
    """63 bits of a text."""
    return (
        int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
    )


def _token_code(token: str) -> int:
    return _code(token.lower()) if token[0].isalnum() or token[0] == "_" else _NO_WORD


class HashingEmbedder:
    """Counts the words of a text, without regard to case, in signed buckets; norm 1.

    Texts that share words are near each other, others nearly orthogonal. A text in which nothing
    counts (no word, or words that cancel out) is hashed as a whole.
    """

    def __init__(self, settings: HashingEmbedderSettings, recipe: EmbeddingRecipe) -> None:
        self.recipe = recipe
        self._prompts: dict[Role, str] = {
            "document": recipe.document_prompt,
            "query": recipe.query_prompt,
        }
        self._rows_per_slice = max(1, _SLICE_CELLS // settings.dimension)
        # From pieces to codes at once: half the time of making words first.
        self._codes = Pieces(_token_code)

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; see :class:`~embedmill.embedder.Embedder`."""
        prompt, limit = self._prompts[role], self.recipe.max_tokens
        whole = [prompt + text for text in texts]
        codes, sizes = self._codes_of(whole)
        kept = np.minimum(sizes, limit)
        if len(codes) > kept.sum():
            codes = codes[_places(sizes) < limit]
        ends = np.append(0, np.cumsum(kept))
        step = self._rows_per_slice
        parts = [np.empty((0, self.recipe.dimension), np.float32)]
        for at in range(0, len(texts), step):
            rows = slice(at, at + step)
            some = codes[ends[at] : ends[min(at + step, len(texts))]]
            parts.append(self._vectors(whole[rows], some, kept[rows]))
        vectors, failures = checked_rows(np.concatenate(parts), self.recipe)
        blank = [row for row, text in enumerate(texts) if not text or text.isspace()]
        failures |= {row: PermanentError("the text is blank", code="blank") for row in blank}
        vectors[blank] = np.nan
        kept[list(failures)] = 0
        return EmbeddedTexts(vectors, failures, int(kept.sum()), int((sizes > limit).sum()))

    def _codes_of(self, texts: Sequence[str]) -> tuple[_Codes, Integers]:
        """The code of every token of some texts, and how many tokens each text has."""
        pieces = TextPieces.of(texts)
        made = list(map(self._codes.__getitem__, pieces.distinct))
        sizes = np.fromiter(map(len, made), np.int64, len(made))
        codes = np.fromiter(chain.from_iterable(made), np.int64, int(sizes.sum()))
        return codes[pieces.spread(sizes)], pieces.sums(sizes)

    def _vectors(self, texts: list[str], codes: _Codes, sizes: Integers) -> Vectors:
        dimension = self.recipe.dimension
        row_of = np.repeat(np.arange(len(texts)), sizes)
        words = codes != _NO_WORD
        table = _signed_counts(codes[words], row_of[words], (len(texts), dimension))
        norms = np.linalg.norm(table, axis=1)
        for row in np.flatnonzero(norms == 0):
            tokens = words_of(texts[row])[: self.recipe.max_tokens]
            whole = np.array([_code(" ".join(tokens))])
            table[row] = _signed_counts(whole, np.zeros(1, np.int64), (1, dimension))[0]
            norms[row] = 1.0
        vectors: Vectors = (table / norms[:, None]).astype(np.float32)
        return vectors


def _places(sizes: Integers) -> Integers:
    """0, 1, 2, ... for every text anew, as many as it has tokens."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _signed_counts(
    codes: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], shape: tuple[int, int]
) -> npt.NDArray[np.float64]:
    """Sum +1 or -1 (lowest bit) into the bucket that the other bits name, row by row."""
    signs = 1.0 - 2.0 * (codes & 1)
    buckets = (codes >> 1) % shape[1]
    cells = rows * shape[1] + buckets
    sums = np.bincount(cells, weights=signs, minlength=shape[0] * shape[1])
    # numpy's stubs say integers here whatever the weights are.
    return sums.astype(np.float64, copy=False).reshape(shape)
