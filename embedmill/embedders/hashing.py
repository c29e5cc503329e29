"""Vectors from hashed words: no model, equal on every machine, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from embedmill.embedder import EmbeddedTexts, Role, Vectors, checked_rows
from embedmill.embedders.word_tokenizer import Pieces, WordTokenizer, words_of
from embedmill.errors import PermanentError
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.settings import HashingEmbedderSettings

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
        codes = [np.fromiter(self._codes.of(text), np.int64) for text in whole]
        kept = [row if len(row) <= limit else row[:limit] for row in codes]
        step = self._rows_per_slice
        slices = [slice(at, at + step) for at in range(0, len(texts), step)]
        parts = [self._vectors(whole[rows], kept[rows]) for rows in slices]
        vectors = np.concatenate([*parts, np.empty((0, self.recipe.dimension), np.float32)])
        blank = [row for row, text in enumerate(texts) if not text or text.isspace()]
        vectors, failures = checked_rows(vectors, self.recipe)
        failures |= {row: PermanentError("the text is blank", code="blank") for row in blank}
        vectors[blank] = np.nan
        lengths = [0 if row in failures else len(tokens) for row, tokens in enumerate(kept)]
        cut = sum(len(tokens) > limit for tokens in codes)
        return EmbeddedTexts(vectors, failures, sum(lengths), cut)

    def _vectors(self, texts: list[str], rows: list[_Codes]) -> Vectors:
        dimension = self.recipe.dimension
        codes = np.concatenate(rows)
        row_of = np.repeat(np.arange(len(rows)), list(map(len, rows)))
        words = codes != _NO_WORD
        table = _signed_counts(codes[words], row_of[words], (len(rows), dimension))
        norms = np.linalg.norm(table, axis=1)
        for row in np.flatnonzero(norms == 0):
            tokens = words_of(texts[row])[: self.recipe.max_tokens]
            whole = np.array([_code(" ".join(tokens))])
            table[row] = _signed_counts(whole, np.zeros(1, np.int64), (1, dimension))[0]
            norms[row] = 1.0
        vectors: Vectors = (table / norms[:, None]).astype(np.float32)
        return vectors


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
