"""A BERT-like encoder and what follows it as bare torch functions, from the model's weights.

Neither sentence-transformers nor transformers is imported for it, which is two thirds of the time
that a worker takes to its first vector: 1.5 s in place of 6 s of processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import torch
from torch import Tensor
from torch.nn import functional

from embedmill.local_models.encoder_weights import EncoderShape, EncoderWeights, Floats
from embedmill.local_models.model_head import Dense, Normalise, Pooling, PoolingMode, Step
from embedmill.local_models.torch_batch import TorchBatch


class TorchEncoder:
    """From token ids to a vector for each text; padding comes last.

    The encoder computes in the given dtype, what follows it in float32.

    Args:
        weights: of the encoder.
        steps: after it.
        device: of torch.
        dtype: of torch.
        pad_id: what stands for no token.
    """

    pads_left = False

    def __init__(
        self,
        weights: EncoderWeights,
        steps: Sequence[Step],
        device: torch.device,
        dtype: torch.dtype,
        *,
        pad_id: int,
    ) -> None:
        self.pad_id = pad_id
        self._steps = [_step(step, device) for step in steps]
        made = _Parts(weights, device, dtype)
        self._words = made.tensor(weights["embeddings.word_embeddings.weight"])
        self._places = made.tensor(weights.position_rows())
        self._normalised = made.normalisation("embeddings.LayerNorm")
        self._layers = [
            _Layer(
                weights.shape,
                attended=made.linear(
                    *(f"encoder.layer.{n}.attention.self.{part}" for part in _ATTENDED)
                ),
                seen=made.linear(f"encoder.layer.{n}.attention.output.dense"),
                seen_normalised=made.normalisation(f"encoder.layer.{n}.attention.output.LayerNorm"),
                wide=made.linear(f"encoder.layer.{n}.intermediate.dense"),
                thought=made.linear(f"encoder.layer.{n}.output.dense"),
                thought_normalised=made.normalisation(f"encoder.layer.{n}.output.LayerNorm"),
            )
            for n in range(weights.shape.layers)
        ]

    def __call__(self, batch: TorchBatch) -> Tensor:
        """See :class:`~embedmill.local_models.torch_batch.TorchNetwork`."""
        words = functional.embedding(batch.ids, self._words)
        tokens = self._normalised(words + self._places[: batch.ids.shape[1]])
        far = _far(batch.mask, tokens.dtype) if batch.has_padding else None
        for layer in self._layers:
            tokens = layer(tokens, far)
        found = tokens.float()
        for step in self._steps:
            found = step(found, batch.mask)
        return found


_ATTENDED = ("query", "key", "value")


def _far(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of padding, for every head and every query of a text."""
    far = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return far.masked_fill(mask == 0, torch.finfo(dtype).min)[:, None, None, :]


@dataclass(frozen=True, slots=True)
class _Layer:
    shape: EncoderShape
    attended: _Linear
    seen: _Linear
    seen_normalised: Callable[[Tensor], Tensor]
    wide: _Linear
    thought: _Linear
    thought_normalised: Callable[[Tensor], Tensor]

    def __call__(self, tokens: Tensor, far: Tensor | None) -> Tensor:
        seen = self.seen.added_to(tokens, self._attention(tokens, far))
        tokens = self.seen_normalised(seen)
        return self.thought_normalised(self.thought.added_to(tokens, self.wide.gelu(tokens)))

    def _attention(self, tokens: Tensor, far: Tensor | None) -> Tensor:
        texts, width, _ = tokens.shape
        apart = self.attended(tokens).view(
            texts, width, len(_ATTENDED), self.shape.heads, self.shape.head_width
        )
        query, key, value = apart.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=far)
        return found.transpose(1, 2).reshape(tokens.shape)


class _Linear:
    """A matrix (out, in) and a bias."""

    def __init__(self, matrix: Tensor, bias: Tensor) -> None:
        self._matrix, self._bias = matrix, bias

    def __call__(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self._matrix, self._bias)

    def gelu(self, inputs: Tensor) -> Tensor:
        return functional.gelu(self(inputs))

    def added_to(self, others: Tensor, inputs: Tensor) -> Tensor:
        return self(inputs) + others


class _PackedLinear(_Linear):
    """The same on a CPU, with the matrix laid out for oneDNN once and what follows fused.

    ``functional.linear`` lays it out at every call. MiniLM on one Zen 4 core, chunks of 230 tokens:
    15 % more chunks a second in bfloat16, 16 % in float32. torch's own compiler calls these
    functions; they have no public name.
    """

    def __init__(self, matrix: Tensor, bias: Tensor) -> None:
        super().__init__(_onednn("_reorder_linear_weight")(matrix), bias)
        self._call = _onednn("_linear_pointwise")

    def __call__(self, inputs: Tensor) -> Tensor:
        found: Tensor = self._call(inputs, self._matrix, self._bias, "none", [], "")
        return found

    def gelu(self, inputs: Tensor) -> Tensor:
        # "none" is the exact function, not the one by tanh.
        found: Tensor = self._call(inputs, self._matrix, self._bias, "gelu", [], "none")
        return found

    def added_to(self, others: Tensor, inputs: Tensor) -> Tensor:
        found: Tensor = self._call.binary(inputs, others, self._matrix, self._bias, "add")
        return found


def packs(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch lays matrices out for oneDNN, and computes the dtype with it."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    wanted = {torch.float32: (), torch.bfloat16: ("_is_mkldnn_bf16_supported",)}.get(dtype)
    if wanted is None or not all(hasattr(torch.ops.mkldnn, name) for name in (*_PACKING, *wanted)):
        return False
    return all(_onednn(name)() for name in wanted)


_PACKING = ("_reorder_linear_weight", "_linear_pointwise")


def _onednn(name: str) -> Any:  # noqa: ANN401 (a function of torch)
    return getattr(torch.ops.mkldnn, name)


class _Parts:
    """Makes the parts of a network from weights by name."""

    def __init__(self, weights: EncoderWeights, device: torch.device, dtype: torch.dtype) -> None:
        self._weights = weights
        self._device, self._dtype = device, dtype
        self._linear = _PackedLinear if packs(device, dtype) else _Linear

    def tensor(self, values: Floats) -> Tensor:
        return torch.tensor(values, device=self._device, dtype=self._dtype)

    def linear(self, *names: str) -> _Linear:
        """One of several that have the same input: their outputs stand beside each other."""
        matrices = [self.tensor(self._weights[f"{name}.weight"]) for name in names]
        biases = [self.tensor(self._weights[f"{name}.bias"]) for name in names]
        return self._linear(torch.cat(matrices), torch.cat(biases))

    def normalisation(self, name: str) -> Callable[[Tensor], Tensor]:
        scale, shift = (self.tensor(self._weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        epsilon = self._weights.shape.epsilon

        def normalised(tokens: Tensor) -> Tensor:
            return functional.layer_norm(tokens, scale.shape, scale, shift, epsilon)

        return normalised


def _step(step: Step, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """A module after the transformer: takes what the one before made, and the mask."""
    match step:
        case Pooling():
            modes = step.modes
            return lambda found, mask: torch.cat([_pooled(m, found, mask) for m in modes], 1)
        case Dense():
            return _dense(step, device)
        case Normalise():
            return lambda found, _: functional.normalize(found, dim=1)
        case _:
            assert_never(step)


def _dense(step: Dense, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    weights, shift = step.weights()
    matrix = torch.tensor(weights, device=device)
    bias = None if shift is None else torch.tensor(shift, device=device)
    activation = torch.tanh if step.activation == "tanh" else torch.nn.Identity()
    return lambda found, _: activation(functional.linear(found, matrix, bias))


def _pooled(mode: PoolingMode, tokens: Tensor, mask: Tensor) -> Tensor:
    weights = mask[:, :, None].float()
    match mode:
        case "cls":
            return tokens[:, 0]
        case "lasttoken":
            return tokens[torch.arange(len(mask), device=mask.device), mask.sum(1) - 1]
        case "max":
            return tokens.masked_fill(weights == 0, -torch.inf).amax(1)
        case "mean" | "mean_sqrt_len_tokens":
            count = weights.sum(1)
            return (tokens * weights).sum(1) / (count if mode == "mean" else count.sqrt())
        case _:
            assert_never(mode)
