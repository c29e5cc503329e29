"""A local model that torch computes, on a CPU or a GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from embedmill.embedder import Vectors
from embedmill.errors import PermanentError, TransientError, WorkerDiedError
from embedmill.local_model import Backend, BatchForm, TokenIds, padded, refuse_unknown_tokens
from embedmill.local_models.gpu_batch import tokens_found_once
from embedmill.local_models.torch_batch import TorchBatch, TorchNetwork

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
    """A network on its device. The number of threads is what torch was given.

    Args:
        network: computes.
        device: of torch, where the network is.
        vocabulary: ids are below it; 0: not known.
        window: tokens that the model reads.
    """

    backend: Backend = "torch"

    def __init__(
        self,
        network: TorchNetwork,
        device: torch.device,
        *,
        vocabulary: int,
        window: int,
    ) -> None:
        self._network = network
        self._device = device
        self._vocabulary = vocabulary
        self._window = window
        self._on_cpu = device.type == "cpu"
        self.form = _ON_CPU if self._on_cpu else _ON_GPU

    def pooled(self, texts: Sequence[TokenIds], prompt_tokens: int) -> Vectors:
        """See :class:`~embedmill.local_model.LocalModel`."""
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
        found = torch.cuda.get_device_properties(self._device)
        return (found.name, f"{found.total_memory} bytes", f"torch {torch.__version__}")

    def take_best_batch(self, facts: Sequence[str]) -> None:
        """Compute in the batches that are best on the device; found once for the same facts.

        Args:
            facts: about model, dtype and device.
        """
        self.form = replace(self.form, tokens=tokens_found_once(facts, self._seconds))

    def _seconds(self, tokens: int) -> float | None:
        """How long a batch of so many tokens takes; None where the memory does not take it."""
        length = min(self._window, _LENGTH_TO_TRY)
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
        network = self._network
        numbers = padded(texts, network.pad_id, left=network.pads_left)
        # A GPU that is asked for such a row is lost to the process.
        refuse_unknown_tokens(numbers, self._vocabulary)
        table = torch.from_numpy(numbers)
        if self._device.type == "cuda":
            # From pinned memory it is copied while the GPU computes.
            table = table.pin_memory()
        ids, mask, types = table.to(self._device, non_blocking=not self._on_cpu)
        has_padding = min(map(len, texts)) < numbers.shape[2]
        result: Vectors = (
            network(TorchBatch(ids, mask, types, has_padding, prompt_tokens)).cpu().numpy()
        )
        return result
