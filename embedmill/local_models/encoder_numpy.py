"""A BERT-like encoder in float32 with numpy alone: slow, and independent of every other backend.

It is what fast backends are checked against on machines without torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embedmill.local_models.encoder_weights import EncoderWeights, Floats


def token_vectors(weights: EncoderWeights, ids: Sequence[int]) -> Floats:
    """Vectors of the tokens of one text, shape (tokens, width)."""
    return _Encoder(weights).tokens(ids)


class _Encoder:
    def __init__(self, weights: EncoderWeights) -> None:
        self._weights = weights
        self._shape = weights.shape

    def tokens(self, ids: Sequence[int]) -> Floats:
        words = self._weights["embeddings.word_embeddings.weight"]
        found = words[np.asarray(ids)] + self._weights.position_rows()[: len(ids)]
        found = self._normalised(found, "embeddings.LayerNorm")
        for layer in range(self._shape.layers):
            found = self._layer(found, f"encoder.layer.{layer}.")
        return found

    def _layer(self, tokens: Floats, name: str) -> Floats:
        seen = self._linear(self._attention(tokens, name), f"{name}attention.output.dense")
        tokens = self._normalised(seen + tokens, f"{name}attention.output.LayerNorm")
        wide = _gelu(self._linear(tokens, f"{name}intermediate.dense"))
        thought = self._linear(wide, f"{name}output.dense")
        return self._normalised(thought + tokens, f"{name}output.LayerNorm")

    def _attention(self, tokens: Floats, name: str) -> Floats:
        shape = self._shape
        query, key, value = (
            self._linear(tokens, f"{name}attention.self.{part}")
            .reshape(len(tokens), shape.heads, shape.head_width)
            .swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / np.float32(np.sqrt(shape.head_width))
        chances = np.exp(scores - scores.max(axis=2, keepdims=True))
        chances /= chances.sum(axis=2, keepdims=True)
        return np.asarray((chances @ value).swapaxes(0, 1).reshape(tokens.shape), np.float32)

    def _linear(self, tokens: Floats, name: str) -> Floats:
        found: Floats = tokens @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return found

    def _normalised(self, tokens: Floats, name: str) -> Floats:
        centred = tokens - tokens.mean(axis=1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + self._shape.epsilon)
        scaled = centred / spread * self._weights[f"{name}.weight"]
        return np.asarray(scaled + self._weights[f"{name}.bias"], np.float32)


def _gelu(values: Floats) -> Floats:
    return np.asarray(values * (1 + _erf(values / np.float32(np.sqrt(2)))) / 2, np.float32)


def _erf(values: Floats) -> Floats:
    """The error function, within 1.5e-7 (Abramowitz and Stegun, 7.1.26); numpy has none."""
    t = 1 / (1 + 0.3275911 * np.abs(values))
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return np.asarray(np.sign(values) * (1 - series * np.exp(-(values**2))), np.float32)
