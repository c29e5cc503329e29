"""Vectors from hashed words: no model, equal on every machine, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

_Sums: TypeAlias = npt.NDArray[np.float64]
# Codes of marks that are no words; they are not hashed.
_NO_WORD = -1
# Texts embedded at once, as many as an ordinary segment has: what is held of each word of theirs is
# ten times the segment of one large document.
_AT_ONCE = 2_048
# Buckets counted at once: 32 MB of float64.
_SLICE_CELLS = 4_194_304


@dataclass(frozen=True, slots=True)
class _Words:
    """Different words: each is hashed once, and its texts only add it up.

    Attributes:
        buckets: that each adds to.
        signs: what it adds: 1, -1, or 0 for marks that are no words.
    """

    buckets: Integers
    signs: _Sums


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
        starts = range(0, max(len(texts), 1), _AT_ONCE)
        parts = [self._embedded(texts[at : at + _AT_ONCE], role) for at in starts]
        failures = {
            at + row: failure
            for at, part in zip(starts, parts, strict=True)
            for row, failure in part.failures.items()
        }
        return EmbeddedTexts(
            np.concatenate([part.vectors for part in parts])
            if len(parts) > 1
            else parts[0].vectors,
            failures,
            sum(part.token_count for part in parts),
            sum(part.truncated for part in parts),
        )

    def _embedded(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        prompt, limit = self._prompts[role], self.recipe.max_tokens
        whole = [prompt + text for text in texts] if prompt else texts
        pieces = TextPieces.of(whole)
        made = list(map(self._codes.__getitem__, pieces.distinct))
        parts = np.fromiter(map(len, made), np.int64, len(made))
        words = self._hashed(np.fromiter(chain.from_iterable(made), np.int64, int(parts.sum())))
        places, sizes = pieces.spread(parts), pieces.sums(parts)
        kept = np.minimum(sizes, limit)
        if len(places) > kept.sum():
            places = places[_places(sizes) < limit]
        vectors, failures = checked_rows(self._vectors(whole, words, places, kept), self.recipe)
        blank = [row for row, text in enumerate(texts) if not text or text.isspace()]
        failures |= {row: PermanentError("the text is blank", code="blank") for row in blank}
        vectors[blank] = np.nan
        kept[list(failures)] = 0
        return EmbeddedTexts(vectors, failures, int(kept.sum()), int((sizes > limit).sum()))

    def _hashed(self, codes: Integers) -> _Words:
        """What tokens add, and where: the lowest bit is the sign, the others name the bucket."""
        signs = np.where(codes == _NO_WORD, 0.0, 1.0 - 2.0 * (codes & 1))
        return _Words((codes >> 1) % self.recipe.dimension, signs)

    def _vectors(
        self, texts: Sequence[str], words: _Words, places: Integers, sizes: Integers
    ) -> Vectors:
        """Normalised sums of the words of each text.

        Args:
            texts: to embed.
            words: different ones.
            places: in ``words``, of every token of every text.
            sizes: tokens of each text.
        """
        ends = np.append(0, np.cumsum(sizes))
        vectors = np.empty((len(texts), self.recipe.dimension), np.float32)
        for at in range(0, len(texts), self._rows_per_slice):
            rows = slice(at, min(at + self._rows_per_slice, len(texts)))
            found = self._summed(words, places[ends[rows.start] : ends[rows.stop]], sizes[rows])
            norms = np.linalg.norm(found, axis=1)
            for row in np.flatnonzero(norms == 0):
                found[row], norms[row] = self._whole(texts[at + int(row)]), 1.0
            np.divide(found, norms[:, None], out=vectors[rows], casting="same_kind")
        return vectors

    def _summed(self, words: _Words, places: Integers, sizes: Integers) -> _Sums:
        """Words summed up into buckets, text by text."""
        shape = len(sizes), self.recipe.dimension
        cells = np.repeat(np.arange(len(sizes)) * shape[1], sizes)
        cells += words.buckets[places]
        counts = np.bincount(cells, weights=words.signs[places], minlength=shape[0] * shape[1])
        # numpy's stubs say integers here whatever the weights are.
        sums: _Sums = counts.astype(np.float64, copy=False).reshape(shape)
        return sums

    def _whole(self, text: str) -> _Sums:
        """A text in which nothing counts, as one word."""
        tokens = words_of(text)[: self.recipe.max_tokens]
        one = self._hashed(np.array([_code(" ".join(tokens))]))
        row: _Sums = self._summed(one, np.zeros(1, np.int64), np.ones(1, np.int64))[0]
        return row


def _places(sizes: Integers) -> Integers:
    """0, 1, 2, ... for every text anew, as many as it has tokens."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
