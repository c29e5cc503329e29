"""What a model does with its tokens' vectors: the modules after the transformer, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, assert_never, get_args

import numpy as np
import numpy.typing as npt
import orjson

from embedmill.local_models.encoder_weights import Floats, UnsupportedModelError

PoolingMode = Literal["cls", "mean", "max", "mean_sqrt_len_tokens", "lasttoken"]
# Flags of older files, in the order in which their vectors stand beside each other.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "identity",
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """From vectors of tokens to one of the text; several modes stand beside each other."""

    modes: tuple[PoolingMode, ...]


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer with its activation."""

    folder: Path
    activation: str

    def weights(self) -> tuple[Floats, Floats | None]:
        """Matrix (out, in) and bias."""
        return _linear(self.folder / "model.safetensors")


@lru_cache
def _linear(path: Path) -> tuple[Floats, Floats | None]:
    from safetensors.numpy import load_file

    found = load_file(path)
    bias = found.get("linear.bias")
    matrix = np.asarray(found["linear.weight"], np.float32)
    return matrix, None if bias is None else np.asarray(bias, np.float32)


@dataclass(frozen=True, slots=True)
class Normalise:
    """To norm 1."""


Step = Pooling | Dense | Normalise


def head_of(modules: Sequence[tuple[str, Path]]) -> tuple[Step, ...]:
    """The steps after the transformer.

    Args:
        modules: class name and folder, as ``modules.json`` lists them, the transformer first.

    Raises:
        UnsupportedModelError: a module is of another kind, or has an option that is not known here.
    """
    (first, _), *rest = modules
    if first != "Transformer":
        raise UnsupportedModelError(f"the model begins with a {first}")
    steps = tuple(_step(kind, folder) for kind, folder in rest)
    if not steps or not isinstance(steps[0], Pooling):
        raise UnsupportedModelError("the model does not pool first")
    return steps


def _step(kind: str, folder: Path) -> Step:
    path = folder / "config.json"
    config: dict[str, Any] = orjson.loads(path.read_bytes()) if path.is_file() else {}
    if kind == "Pooling":
        return Pooling(_modes(config))
    if kind == "Normalize":
        _require_sentence(kind, config)
        return Normalise()
    if kind == "Dense":
        return _dense(folder, config)
    raise UnsupportedModelError(f"a module of the model is a {kind}")


def _modes(config: dict[str, Any]) -> tuple[PoolingMode, ...]:
    if not config.get("include_prompt", True):
        raise UnsupportedModelError("the model leaves its prompt out of the mean")
    stated = config.get("pooling_mode")
    if stated is None:
        stated = [mode for flag, mode in _FLAGS.items() if config.get(flag)] or ["mean"]
    modes = tuple([stated] if isinstance(stated, str) else stated)
    for mode in modes:
        if mode not in get_args(PoolingMode):
            raise UnsupportedModelError(f"the model pools by {mode}")
    return modes


def _dense(folder: Path, config: dict[str, Any]) -> Dense:
    activation = _ACTIVATIONS.get(config.get("activation_function", ""))
    _require_sentence(folder.name, config)
    if activation is None or config.get("use_residual"):
        raise UnsupportedModelError(f"the dense layer {folder.name} is of an unknown form")
    if not (folder / "model.safetensors").is_file():
        raise UnsupportedModelError(f"the dense layer {folder.name} has no model.safetensors")
    return Dense(folder, activation)


def _require_sentence(name: str, config: dict[str, Any]) -> None:
    """Refuse a module that works on something else than the vector of the text."""
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in {None, "sentence_embedding"}:
            raise UnsupportedModelError(f"the module {name} has {key} {config[key]!r}")


def pool(steps: Sequence[Step], tokens: Floats, mask: npt.NDArray[np.int64]) -> Floats:
    """Apply the steps with numpy.

    Args:
        steps: of the model.
        tokens: vectors of tokens, shape (texts, tokens, width).
        mask: 1 for the tokens of a text, which come first; 0 for padding.
    """
    found = tokens
    for step in steps:
        match step:
            case Pooling():
                found = np.concatenate([_pooled(m, tokens, mask) for m in step.modes], axis=1)
            case Dense():
                matrix, bias = step.weights()
                found = found @ matrix.T + (0 if bias is None else bias)
                found = np.tanh(found) if step.activation == "tanh" else found
            case Normalise():
                norms = np.linalg.norm(found, axis=1, keepdims=True)
                found = found / np.maximum(norms, np.float32(1e-12))
            case _:
                assert_never(step)
    return np.asarray(found, np.float32)


def _pooled(mode: PoolingMode, tokens: Floats, mask: npt.NDArray[np.int64]) -> Floats:
    lengths = mask.sum(axis=1)
    weights = mask[:, :, None].astype(np.float32)
    found: npt.NDArray[np.floating[Any]]
    match mode:
        case "cls":
            found = tokens[:, 0]
        case "lasttoken":
            found = tokens[np.arange(len(tokens)), lengths - 1]
        case "max":
            found = np.where(weights > 0, tokens, -np.inf).max(axis=1)
        case "mean" | "mean_sqrt_len_tokens":
            by = lengths if mode == "mean" else np.sqrt(lengths)
            found = (tokens * weights).sum(axis=1) / by[:, None]
        case _:
            assert_never(mode)
    return found.astype(np.float32)
