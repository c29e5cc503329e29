"""Graphs for OpenVINO: a BERT-like encoder from its weights, and the modules after a transformer.

Built node by node, which takes half a second; a conversion needs torch, and seconds to import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
import openvino as ov
from openvino import opset13 as op

from embedmill.local_models.encoder_weights import EncoderWeights
from embedmill.local_models.model_head import Dense, Normalise, Pooling, PoolingMode, Step

if TYPE_CHECKING:
    from openvino import Node

# Subtracted from the scores of padding; finite, as infinity minus infinity is no number.
_FAR = 1e30


def encoder_graph(weights: EncoderWeights, steps: Sequence[Step]) -> ov.Model:
    """Inputs ``ids`` and ``mask`` (int64, texts by tokens), one output: a vector for each text."""
    ids = op.parameter([-1, -1], ov.Type.i64, name="ids")
    mask = op.parameter([-1, -1], ov.Type.i64, name="mask")
    tokens = _Encoder(weights, mask).tokens(ids)
    return ov.Model([head(steps, tokens, mask)], [ids, mask], "embedder")


def head(steps: Sequence[Step], tokens: Node, mask: Node) -> Node:
    """The modules after the transformer.

    Args:
        steps: of the model.
        tokens: float32, (texts, tokens, width).
        mask: int64, (texts, tokens); padding comes last.
    """
    found = tokens
    for step in steps:
        match step:
            case Pooling():
                parts = [_pooled(mode, tokens, mask) for mode in step.modes]
                found = parts[0] if len(parts) == 1 else op.concat(parts, 1)
            case Dense():
                matrix, bias = step.weights()
                found = op.matmul(found, _constant(matrix), transpose_a=False, transpose_b=True)
                found = found if bias is None else op.add(found, _constant(bias))
                found = op.tanh(found) if step.activation == "tanh" else found
            case Normalise():
                found = op.normalize_l2(found, _integers(1), 1e-24, "max")
            case _:
                assert_never(step)
    return found


def _pooled(mode: PoolingMode, tokens: Node, mask: Node) -> Node:
    weights = op.unsqueeze(op.convert(mask, "f32"), _integers(2))
    match mode:
        case "cls":
            return op.gather(tokens, _integer(0), _integer(1))
        case "lasttoken":
            last = op.subtract(op.reduce_sum(mask, _integers(1)), _integer(1))
            return op.gather(tokens, last, _integer(1), batch_dims=1)
        case "max":
            far = op.multiply(op.subtract(weights, _number(1)), _number(_FAR))
            return op.reduce_max(op.add(tokens, far), _integers(1))
        case "mean" | "mean_sqrt_len_tokens":
            count = op.reduce_sum(weights, _integers(1))
            by = count if mode == "mean" else op.sqrt(count)
            return op.divide(op.reduce_sum(op.multiply(tokens, weights), _integers(1)), by)
        case _:
            assert_never(mode)


class _Encoder:
    def __init__(self, weights: EncoderWeights, mask: Node) -> None:
        self._weights = weights
        self._shape = weights.shape
        distance = op.multiply(op.subtract(op.convert(mask, "f32"), _number(1)), _number(_FAR))
        # To every head and every query of a text.
        self._bias = op.unsqueeze(distance, _integers(1, 2))

    def tokens(self, ids: Node) -> Node:
        words = op.gather(self._constant("embeddings.word_embeddings.weight"), ids, _integer(0))
        width = op.gather(op.shape_of(ids), _integers(1), _integer(0))
        places = op.slice(
            _constant(self._weights.position_rows()),
            _integers(0),
            width,
            _integers(1),
            _integers(0),
        )
        found = self._normalised(op.add(words, places), "embeddings.LayerNorm")
        for layer in range(self._shape.layers):
            found = self._layer(found, f"encoder.layer.{layer}.")
        return found

    def _layer(self, tokens: Node, name: str) -> Node:
        seen = self._linear(self._attention(tokens, name), f"{name}attention.output.dense")
        tokens = self._normalised(op.add(seen, tokens), f"{name}attention.output.LayerNorm")
        wide = op.gelu(self._linear(tokens, f"{name}intermediate.dense"), "erf")
        thought = self._linear(wide, f"{name}output.dense")
        return self._normalised(op.add(thought, tokens), f"{name}output.LayerNorm")

    def _attention(self, tokens: Node, name: str) -> Node:
        apart = _integers(0, 0, self._shape.heads, self._shape.head_width)
        query, key, value = (
            op.transpose(
                op.reshape(
                    self._linear(tokens, f"{name}attention.self.{part}"), apart, special_zero=True
                ),
                _integers(0, 2, 1, 3),
            )
            for part in ("query", "key", "value")
        )
        found = op.scaled_dot_product_attention(query, key, value, self._bias)
        together = _integers(0, 0, self._shape.width)
        return op.reshape(op.transpose(found, _integers(0, 2, 1, 3)), together, special_zero=True)

    def _linear(self, tokens: Node, name: str) -> Node:
        matrix = self._constant(f"{name}.weight")
        product = op.matmul(tokens, matrix, transpose_a=False, transpose_b=True)
        return op.add(product, self._constant(f"{name}.bias"))

    def _normalised(self, tokens: Node, name: str) -> Node:
        spread = op.mvn(
            tokens,
            _integers(-1),
            normalize_variance=True,
            eps=self._shape.epsilon,
            eps_mode="inside_sqrt",
        )
        scaled = op.multiply(spread, self._constant(f"{name}.weight"))
        return op.add(scaled, self._constant(f"{name}.bias"))

    def _constant(self, name: str) -> Node:
        return _constant(self._weights[name])


def _constant(values: Any) -> Node:  # noqa: ANN401 (an array)
    return op.constant(np.ascontiguousarray(values))


def _integers(*values: int) -> Node:
    return op.constant(np.array(values, np.int64))


def _integer(value: int) -> Node:
    return op.constant(np.array(value, np.int64))


def _number(value: float) -> Node:
    return op.constant(np.array(value, np.float32))
