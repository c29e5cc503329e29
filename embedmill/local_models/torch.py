"""A local model through sentence-transformers; with ``traced_graph`` all that imports torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from embedmill.embedder import Vectors
from embedmill.embedders.model_location import INSTALL_LOCAL, ModelLocation
from embedmill.errors import (
    MissingExtraError,
    PermanentError,
    SettingsError,
    TransientError,
    WorkerDiedError,
)
from embedmill.local_model import Backend, BatchForm, TokenIds, padded
from embedmill.local_models.gpu_batch import tokens_found_once

# Small batches stay in the processor's cache: for MiniLM in bfloat16 8 rows of 200 tokens are
# faster than 32, 64 or 256. Short texts share a batch up to as many tokens as 8 such rows have at
# most: 8 % faster for texts of 40 tokens.
_ON_CPU = BatchForm(rows=8, tokens=2048)
# As many rows as make so many tokens: a GPU idles on 64 short texts, and its memory does not take
# 64 of 8,192 tokens. While one batch is computed the next is put together and copied. How many
# tokens are best is found on the GPU itself; these are for others than NVIDIA's.
_ON_GPU = BatchForm(rows=1, tokens=32_768, streams=2)
# Length of the texts that are computed to find it, unless the model's window is smaller.
_LENGTH_TO_TRY = 512


@dataclass(frozen=True, slots=True)
class _AnyText:
    """A text of so many tokens, whichever."""

    ids: Sequence[int]

    @property
    def type_ids(self) -> Sequence[int]:
        return [0] * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


class TorchModel:
    """The modules of a model on their device.

    The transformer computes in the given dtype, pooling and what follows in float32. The number of
    threads is what torch was given.

    Args:
        location: where the model is.
        device: ``auto`` for the library's choice.
        dtype: name of a torch dtype.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        SettingsError: there is no such device, or the model is no text transformer.
    """

    backend: Backend = "torch"

    def __init__(self, location: ModelLocation, device: str, dtype: str) -> None:
        torch, model = load_modules(location, device, dtype)
        self._torch = torch
        # Any: torch types a module's attributes as tensors.
        modules: list[Any] = list(model)
        self._transformer, *self._pooling = modules
        if type(self._transformer).__name__ != "Transformer":
            raise SettingsError(
                f"embedder.model: {location.name!r} begins with a "
                f"{type(self._transformer).__name__}, not with a text transformer"
            )
        for module in self._pooling:
            module.float()
        tokenizer = self._transformer.tokenizer
        self._pads_left = tokenizer.padding_side == "left"
        self._pad_id = tokenizer.pad_token_id or 0
        self._wants_types = "token_type_ids" in tokenizer.model_input_names
        self._device = model.device
        self._on_cpu = self._device.type == "cpu"
        self.form = _ON_CPU if self._on_cpu else _ON_GPU

    def pooled(self, texts: Sequence[TokenIds], prompt_tokens: int) -> Vectors:
        """See :class:`~embedmill.local_model.LocalModel`."""
        torch = self._torch
        try:
            with torch.inference_mode():
                return self._forward(texts, prompt_tokens)
        except torch.OutOfMemoryError as error:
            self._shrink(texts)
            failure: PermanentError | TransientError = TransientError(
                f"the GPU's memory does not take one text of {len(texts[0])} tokens: {error}",
                code="gpu-memory",
                hint="give fewer models to one GPU: run.gpus_per_embed_worker",
            )
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if "CUDA error" in str(error):
                # After one such error every later call of the process fails alike.
                raise WorkerDiedError(f"the GPU is lost to this process: {error}") from error
            failure = PermanentError(f"the model fails on the text: {error}", code="model")
        if not self._on_cpu:
            torch.cuda.empty_cache()
        raise failure

    def device_facts(self) -> tuple[str, ...]:
        """What decides how much an NVIDIA GPU takes at once; empty where the model is elsewhere."""
        if self._device.type != "cuda":
            return ()
        found = self._torch.cuda.get_device_properties(self._device)
        return (found.name, f"{found.total_memory} bytes", f"torch {self._torch.__version__}")

    def take_best_batch(self, facts: Sequence[str]) -> None:
        """Compute in the batches that are best on the device; found once for the same facts.

        Args:
            facts: about model, dtype and device.
        """
        self.form = replace(self.form, tokens=tokens_found_once(facts, self._seconds))

    def _seconds(self, tokens: int) -> float | None:
        """How long a batch of so many tokens takes; None where the memory does not take it."""
        torch = self._torch
        length = min(self._transformer.max_seq_length or _LENGTH_TO_TRY, _LENGTH_TO_TRY)
        texts = [_AnyText([1] * length)] * max(1, tokens // length)
        started = time.perf_counter()
        try:
            with torch.inference_mode():
                self._forward(texts, 0)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None
        return time.perf_counter() - started

    def _shrink(self, texts: Sequence[TokenIds]) -> None:
        """Later batches have half the tokens of one that the memory did not take."""
        tokens = len(texts) * max(map(len, texts)) // 2
        self.form = replace(self.form, tokens=min(self.form.tokens, tokens))

    def _forward(self, texts: Sequence[TokenIds], prompt_tokens: int) -> Vectors:
        """What the transformer and the pooling read; ``prompt_length`` only some pooling does."""
        table = self._torch.from_numpy(padded(texts, self._pad_id, left=self._pads_left))
        if self._device.type == "cuda":
            # From pinned memory it is copied while the GPU computes.
            table = table.pin_memory()
        ids, mask, types = table.to(self._device, non_blocking=not self._on_cpu)
        features = {"input_ids": ids, "attention_mask": mask, "prompt_length": prompt_tokens}
        if self._wants_types:
            features["token_type_ids"] = types
        features = self._transformer(features)
        features["token_embeddings"] = features["token_embeddings"].float()
        for module in self._pooling:
            features = module(features)
        result: Vectors = features["sentence_embedding"].float().cpu().numpy()
        return result


def load_modules(location: ModelLocation, device: str, dtype: str) -> tuple[ModuleType, Any]:
    """The torch module and a ``SentenceTransformer``.

    Raises:
        MissingExtraError: one of them is not installed.
        SettingsError: there is no such device.
    """
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        if error.name not in {"torch", "sentence_transformers"}:
            raise
        raise MissingExtraError(
            f"embedder.backend torch needs {error.name}, which is not installed",
            hint=INSTALL_LOCAL,
        ) from error
    _no_progress_bars()
    model = SentenceTransformer(
        str(location.directory),
        device=_present(torch, device),
        # All files are here; nothing is asked of the hub.
        local_files_only=True,
        model_kwargs={"dtype": getattr(torch, dtype)},
    )
    return torch, model.eval()


def gpu_names() -> list[str]:
    """The GPUs that torch can use."""
    import torch

    return [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]


def _present(torch: ModuleType, device: str) -> str | None:
    """The device, or None for the library's choice.

    Raises:
        SettingsError: there is no such device.
    """
    if device == "auto":
        return None
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise SettingsError(f"embedder.device: {device!r} is no device") from error
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    count = counts.get(wanted.type, 0)
    if (wanted.index or 0) >= count:
        raise SettingsError(
            f"embedder.device is {device!r}, but torch {torch.__version__} finds {count} devices "
            f"of the kind {wanted.type!r} here",
            hint="set embedder.device to auto, or install a torch that is built for the GPU",
        )
    return device


def _no_progress_bars() -> None:
    from transformers.utils import logging

    # Any: the function has no types.
    disable: Any = logging.disable_progress_bar
    disable()
