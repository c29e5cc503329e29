"""A local model: texts are tokenised once, sorted by length, and computed by a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from embedmill.embedder import EmbeddedTexts, Role, Vectors, checked_rows
from embedmill.embedders.halving import failures_by_halving
from embedmill.embedders.length_batches import length_batches
from embedmill.embedders.model_files import WEIGHTS, describe_model, model_revision
from embedmill.embedders.model_location import ModelLocation, locate_model
from embedmill.embedders.text_encoder import TextEncoder
from embedmill.errors import (
    PermanentError,
    RecipeMismatchError,
    StopRunError,
    TransientError,
    WorkerDiedError,
)
from embedmill.local_model import BatchForm
from embedmill.local_models.build import load_local_model
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import SentenceTransformersSettings

Failure = PermanentError | TransientError | None


class LocalEmbedder:
    """Holds one model on one device.

    A call's texts are tokenised once, all together, and go through the model sorted by length, as
    many batches beside each other as the model has streams. The model computes in the recipe's
    dtype. Control strings in a text are text.

    Attributes:
        recipe: how to compute.
        model: what computes.

    Args:
        settings: where the model is, the backend, the device, the batch size.
        recipe: how to compute; wins over the settings.

    Raises:
        MissingExtraError: the backend is not installed.
        RecipeMismatchError: the weights found are not those of the recipe.
        RefusedError: the model is nowhere to be found, or no backend can compute it.
    """

    def __init__(self, settings: SentenceTransformersSettings, recipe: EmbeddingRecipe) -> None:
        self.recipe = recipe
        location = _locate(settings, recipe)
        description = describe_model(location, settings)
        self._dimension = description.computed_dimension
        self.model = load_local_model(description, settings, recipe)
        self._encoder = TextEncoder(location.directory, recipe)
        self._batch_size = settings.batch_size
        streams = self.model.form.streams
        self._streams = ThreadPoolExecutor(streams) if streams > 1 else None

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; see :class:`~embedmill.embedder.Embedder`."""
        encoded, failures = self._encoder.encode(texts, role)
        lengths = {row: len(encoding) for row, encoding in encoded.items()}
        prompt_tokens = self._encoder.prompt_tokens(role)
        vectors = np.full((len(texts), self.recipe.dimension), np.nan, np.float32)

        def compute(rows: list[int]) -> Failure:
            try:
                found = self.model.pooled([encoded[row] for row in rows], prompt_tokens)
            except WorkerDiedError:
                raise
            except (PermanentError, TransientError) as error:
                return error
            vectors[rows] = self._finished(found)
            return None

        failures |= self._all_batches(lengths, compute)
        vectors, wrong = checked_rows(vectors, self.recipe)
        seen = [row for row in encoded if row not in failures]
        return EmbeddedTexts(
            vectors,
            # What failed earlier has the better reason than that its row is not finite.
            {**wrong, **failures},
            token_count=sum(lengths[row] for row in seen),
            truncated=sum(bool(encoded[row].overflowing) for row in seen),
        )

    def _all_batches(
        self, lengths: dict[int, int], compute: Callable[[list[int]], Failure]
    ) -> dict[int, PermanentError]:
        """Compute all rows; return why some failed."""
        form = self.model.form
        if self._batch_size:
            form = BatchForm(self._batch_size, tokens=0)
        batches = list(length_batches(lengths, form))

        def failures_of(batch: list[int]) -> dict[int, PermanentError]:
            return failures_by_halving(batch, compute)

        beside = self._streams is not None and len(batches) > 1
        every = self._streams.map if self._streams is not None and beside else map
        found: dict[int, PermanentError] = {}
        for failures in every(failures_of, batches):
            found |= failures
        return found

    def _finished(self, pooled: Vectors) -> Vectors:
        """Cut to the recipe's dimension, which some models were trained for, and normalised."""
        if pooled.shape[1] != self._dimension:
            raise StopRunError(
                f"the model makes vectors of dimension {pooled.shape[1]}, its files say "
                f"{self._dimension}",
                code="dimension",
            )
        kept = pooled[:, : self.recipe.dimension]
        if self.recipe.normalise:
            norms = np.linalg.norm(kept, axis=1, keepdims=True)
            kept = kept / np.maximum(norms, np.float32(1e-12))
        return kept


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
            "embedmill reembed SETTINGS",
        )
    return location
