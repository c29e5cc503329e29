"""A local model through sentence-transformers; the only module that imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from embedmill.embedder import EmbeddedTexts, Role, Vectors, checked_rows
from embedmill.embedders.halving import failures_by_halving
from embedmill.embedders.length_batches import length_batches
from embedmill.embedders.model_files import WEIGHTS, model_revision
from embedmill.embedders.model_location import INSTALL_LOCAL, ModelLocation, locate_model
from embedmill.embedders.text_encoder import TextEncoder
from embedmill.errors import (
    MissingExtraError,
    PermanentError,
    RecipeMismatchError,
    SettingsError,
    StopRunError,
    TransientError,
    WorkerDiedError,
)
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import SentenceTransformersSettings

if TYPE_CHECKING:
    from tokenizers import Encoding

# Small batches stay in the processor's cache: for MiniLM in bfloat16 8 rows of 200 tokens are
# faster than 32, 64 or 256. Short texts share a batch up to as many tokens as 8 such rows have at
# most: 8 % faster for texts of 40 tokens.
_CPU_ROWS, _CPU_TOKENS = 8, 2048
# Of the same form; a GPU idles on 64 short texts.
_GPU_ROWS, _GPU_TOKENS = 64, 16_384


class SentenceTransformersEmbedder:
    """Holds one model on one device.

    A call's texts are tokenised once, all together, and go through the model sorted by length. The
    model computes in the recipe's dtype; pooling and normalising are done in float32. Control
    strings in a text are text. The number of threads is what torch was given.

    Args:
        settings: where the model is, the device, the batch size.
        recipe: how to compute; wins over the settings.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        RecipeMismatchError: the weights found are not those of the recipe.
        RefusedError: the model is nowhere to be found, or is no text transformer.
    """

    def __init__(self, settings: SentenceTransformersSettings, recipe: EmbeddingRecipe) -> None:
        self.recipe = recipe
        location = _locate(settings, recipe)
        self._model = _LoadedModel(location, settings.device, recipe)
        self._encoder = TextEncoder(location.directory, recipe)
        rows, tokens = (_CPU_ROWS, _CPU_TOKENS) if self._model.on_cpu else (_GPU_ROWS, _GPU_TOKENS)
        self._rows = settings.batch_size or rows
        self._tokens = 0 if settings.batch_size else tokens

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; see :class:`~embedmill.embedder.Embedder`."""
        encoded, failures = self._encoder.encode(texts, role)
        lengths = {row: len(encoding) for row, encoding in encoded.items()}
        prompt_tokens = self._encoder.prompt_tokens(role)
        vectors = np.full((len(texts), self.recipe.dimension), np.nan, np.float32)

        def compute(rows: list[int]) -> PermanentError | TransientError | None:
            encodings = [encoded[row] for row in rows]
            return self._model.failure_of(vectors, rows, encodings, prompt_tokens)

        for batch in length_batches(lengths, self._rows, self._tokens):
            failures |= failures_by_halving(batch, compute)
        vectors, wrong = checked_rows(vectors, self.recipe)
        seen = [row for row in encoded if row not in failures]
        return EmbeddedTexts(
            vectors,
            # What failed earlier has the better reason than that its row is not finite.
            {**wrong, **failures},
            token_count=sum(lengths[row] for row in seen),
            truncated=sum(bool(encoded[row].overflowing) for row in seen),
        )


def _locate(settings: SentenceTransformersSettings, recipe: EmbeddingRecipe) -> ModelLocation:
    """The very files that the recipe pins."""
    if not recipe.revision.startswith(WEIGHTS):
        settings = settings.model_copy(update={"revision": recipe.revision})
    location = locate_model(settings)
    found = model_revision(location)
    if found != recipe.revision:
        raise RecipeMismatchError(
            f"the weights of {location.name!r} on this machine are {found}, the index was built "
            f"with {recipe.revision}",
            hint="install the same weights on every machine, or build a new version with "
            "embedmill reembed",
        )
    return location


class _LoadedModel:
    """The modules of a model on their device."""

    def __init__(self, location: ModelLocation, device: str, recipe: EmbeddingRecipe) -> None:
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ModuleNotFoundError as error:
            if error.name not in {"torch", "sentence_transformers"}:
                raise
            raise MissingExtraError(
                f"embedder.kind sentence_transformers needs {error.name}, which is not installed",
                hint=INSTALL_LOCAL,
            ) from error
        _no_progress_bars()
        model = SentenceTransformer(
            str(location.directory),
            device=_present(torch, device),
            # All files are here; nothing is asked of the hub.
            local_files_only=True,
            model_kwargs={"dtype": getattr(torch, recipe.dtype)},
        ).eval()
        self._torch = torch
        self._recipe = recipe
        self._truncate_dim = model.truncate_dim
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
        self.on_cpu = self._device.type == "cpu"

    def failure_of(
        self,
        vectors: Vectors,
        rows: list[int],
        encodings: list[Encoding],
        prompt_tokens: int,
    ) -> PermanentError | TransientError | None:
        """Write the vectors of ``rows``; return why that failed, None when it did not.

        Raises:
            WorkerDiedError: the GPU is lost to this process.
        """
        torch = self._torch
        try:
            vectors[rows] = self._forward(encodings, prompt_tokens)
        except torch.OutOfMemoryError as error:
            failure: PermanentError | TransientError = TransientError(
                f"the GPU's memory does not take one text of {len(encodings[0])} tokens: {error}",
                code="gpu-memory",
                hint="give fewer models to one GPU: run.gpus_per_embed_worker",
            )
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if "CUDA error" in str(error):
                # After one such error every later call of the process fails alike.
                raise WorkerDiedError(f"the GPU is lost to this process: {error}") from error
            failure = PermanentError(f"the model fails on the text: {error}", code="model")
        else:
            return None
        if not self.on_cpu:
            torch.cuda.empty_cache()
        return failure

    def _forward(self, encodings: list[Encoding], prompt_tokens: int) -> npt.NDArray[np.float32]:
        torch = self._torch
        with torch.inference_mode():
            features = self._features(encodings, prompt_tokens)
            features = self._transformer(features)
            features["token_embeddings"] = features["token_embeddings"].float()
            for module in self._pooling:
                features = module(features)
            pooled = features["sentence_embedding"][:, : self._truncate_dim].float()
            self._check_dimension(pooled.shape[1])
            if self._recipe.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
            result: npt.NDArray[np.float32] = pooled.cpu().numpy()
        return result

    def _check_dimension(self, dimension: int) -> None:
        if dimension != self._recipe.dimension:
            raise StopRunError(
                f"the model makes vectors of dimension {dimension}, its files say "
                f"{self._recipe.dimension}",
                code="dimension",
            )

    def _features(self, encodings: list[Encoding], prompt_tokens: int) -> dict[str, Any]:
        """What the transformer and the pooling read; ``prompt_length`` only some pooling does."""
        width = max(map(len, encodings))
        table = np.zeros((3, len(encodings), width), np.int64)
        table[0] = self._pad_id
        for row, encoding in enumerate(encodings):
            length = len(encoding)
            at = slice(width - length, width) if self._pads_left else slice(0, length)
            table[0, row, at] = encoding.ids
            table[1, row, at] = 1
            if self._wants_types:
                table[2, row, at] = encoding.type_ids
        ids, mask, types = self._torch.from_numpy(table).to(self._device)
        features = {"input_ids": ids, "attention_mask": mask, "prompt_length": prompt_tokens}
        return {**features, "token_type_ids": types} if self._wants_types else features


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
