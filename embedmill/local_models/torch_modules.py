"""A model of any architecture as sentence-transformers loads it; all that imports that library."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers.utils import logging

from embedmill.embedders.model_location import ModelLocation
from embedmill.errors import SettingsError
from embedmill.local_models.torch_batch import TorchBatch


class TorchModules:
    """The modules of a model, called without what the library puts around them.

    The transformer computes in the given dtype, pooling and what follows in float32.

    Args:
        location: where the model is.
        device: of torch.
        dtype: of torch.

    Raises:
        SettingsError: the model is no text transformer.
    """

    def __init__(self, location: ModelLocation, device: torch.device, dtype: torch.dtype) -> None:
        # Any: torch types a module's attributes as tensors.
        modules: list[Any] = list(load_modules(location, device, dtype))
        self._transformer, *self._pooling = modules
        if type(self._transformer).__name__ != "Transformer":
            raise SettingsError(
                f"embedder.model: {location.name!r} begins with a "
                f"{type(self._transformer).__name__}, not with a text transformer"
            )
        for module in self._pooling:
            module.float()
        tokenizer = self._transformer.tokenizer
        self.pad_id: int = tokenizer.pad_token_id or 0
        self.pads_left: bool = tokenizer.padding_side == "left"
        self._wants_types = "token_type_ids" in tokenizer.model_input_names

    def __call__(self, batch: TorchBatch) -> Tensor:
        """See :class:`~embedmill.local_models.torch_batch.TorchNetwork`."""
        features = {
            "input_ids": batch.ids,
            "attention_mask": batch.mask,
            # Only some pooling reads it.
            "prompt_length": batch.prompt_tokens,
        }
        if self._wants_types:
            features["token_type_ids"] = batch.types
        features = self._transformer(features)
        features["token_embeddings"] = features["token_embeddings"].float()
        for module in self._pooling:
            features = module(features)
        found: Tensor = features["sentence_embedding"].float()
        return found


def load_modules(location: ModelLocation, device: torch.device, dtype: torch.dtype) -> Any:  # noqa: ANN401 (modules)
    """A ``SentenceTransformer``."""
    # Any: the function has no types.
    disable: Any = logging.disable_progress_bar
    disable()
    model = SentenceTransformer(
        str(location.directory),
        device=str(device),
        # All files are here; nothing is asked of the hub.
        local_files_only=True,
        model_kwargs={"dtype": dtype},
    )
    return model.eval()
