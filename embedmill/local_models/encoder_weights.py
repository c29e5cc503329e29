"""The weights of a BERT-like encoder, read without torch.

BERT, RoBERTa, XLM-RoBERTa and CamemBERT are one architecture with one set of names: MiniLM, BGE,
E5, GTE and most other embedding models of up to some hundred million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from embedmill.errors import SettingsError

Floats = npt.NDArray[np.float32]
# Positions of the others begin after the padding id.
_FIRST_POSITION_IS_0 = {"bert"}
_MODEL_TYPES = {"bert", "roberta", "xlm-roberta", "camembert"}
_WORDS = "embeddings.word_embeddings.weight"


class UnsupportedModelError(SettingsError):
    """This backend does not know the model's architecture; another one may."""

    code = "unsupported-model"


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Numbers of an encoder.

    Attributes:
        layers: how many.
        heads: of attention, in each layer.
        width: of a token's vector.
        epsilon: of the normalisations.
        first_position: row of the position table for the first token.
    """

    layers: int
    heads: int
    width: int
    epsilon: float
    first_position: int

    @property
    def head_width(self) -> int:
        """Of a token's vector in one head."""
        return self.width // self.heads


class EncoderWeights:
    """Weights by name, as float32.

    Args:
        directory: of the model.

    Raises:
        UnsupportedModelError: it is no such encoder.
    """

    def __init__(self, directory: Path) -> None:
        self.shape = _shape(directory)
        self._files = {
            name: opened
            for opened in _opened(directory)
            for name in opened.keys()  # noqa: SIM118 (no mapping)
        }
        words = [name for name in self._files if name.endswith(_WORDS)]
        if len(words) != 1:
            raise UnsupportedModelError(f"{directory.name!r} has no {_WORDS} in its safetensors")
        self._prefix = words[0].removesuffix(_WORDS)

    def __getitem__(self, name: str) -> Floats:
        """One tensor.

        Raises:
            UnsupportedModelError: there is none of that name, or numpy lacks its type.
        """
        full = self._prefix + name
        try:
            return np.asarray(self._files[full].get_tensor(full), np.float32)
        except (KeyError, TypeError) as error:
            raise UnsupportedModelError(f"the weights have no {full} for numpy: {error}") from error

    def position_rows(self) -> Floats:
        """What is added to the tokens of a text by their place.

        Includes the row of the first segment, to which every token of a single text belongs.
        """
        positions = self["embeddings.position_embeddings.weight"]
        segment = self["embeddings.token_type_embeddings.weight"][0]
        rows: Floats = positions[self.shape.first_position :] + segment
        return rows


def _opened(directory: Path) -> list[Any]:
    """The files of weights, mapped.

    Raises:
        SettingsError: one of them is damaged.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise UnsupportedModelError("the package safetensors is not installed") from error
    opened = []
    for path in sorted(directory.glob("*.safetensors")):
        try:
            opened.append(safe_open(path, framework="numpy"))
        except (SafetensorError, OSError) as error:
            raise SettingsError(
                f"embedder.model: {path.name} of {directory.name!r} cannot be read: {error}",
                hint="download or install the model again",
            ) from error
    return opened


def _shape(directory: Path) -> EncoderShape:
    config: dict[str, Any] = orjson.loads((directory / "config.json").read_bytes())
    kind = config.get("model_type")
    if kind not in _MODEL_TYPES:
        raise UnsupportedModelError(f"{directory.name!r} is of the type {kind!r}")
    wanted = {
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise UnsupportedModelError(f"{directory.name!r} has {key} {config[key]!r}")
    first = 0 if kind in _FIRST_POSITION_IS_0 else config.get("pad_token_id", 1) + 1
    return EncoderShape(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        width=config["hidden_size"],
        epsilon=config.get("layer_norm_eps", 1e-12),
        first_position=first,
    )
