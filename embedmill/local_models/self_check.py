"""Does a fast backend compute what the model is? Checked once for each machine and model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

from embedmill.embedder import Vectors
from embedmill.embedders.model_files import ModelDescription
from embedmill.embedders.model_tokenizer import load_tokenizer
from embedmill.local_model import LocalModel, TokenIds
from embedmill.local_models.encoder_numpy import token_vectors
from embedmill.local_models.encoder_weights import EncoderWeights, UnsupportedModelError
from embedmill.local_models.model_head import head_of, pool
from embedmill.made_once import made_once
from embedmill.processors import cpu_flags, cpu_name
from embedmill.recipe import EmbeddingRecipe, fingerprint_of

# Backends may differ from float32 by so much, and be mixed within one index version. MiniLM in
# bfloat16: 0.9999 and more; a wrong mask, pooling or activation: below 0.99.
NEAR = 0.999
# 8 bits for a number are another numeric class, which a recipe tells apart. Calibrated MiniLM has
# 0.994 for chunks on average, 0.93 for single words.
NEAR_INT8 = 0.9
# Short and long, prose and code, several scripts: padding, unknown words, the ends of the table.
TEXTS = (
    "Rivers carry sand to the sea.",
    "no",
    "def area(width: float, height: float) -> float:\n    return width * height  # in metres",
    "Der Vertrag regelt, worauf sich beide Seiten verlassen d\u00fcrfen (\u00a7 12).",
    "\u5ddd\u306f\u7802\u3092\u6d77\u3078\u904b\u3076\u3002",
    "The board met on 3 May, moved that the budget of 1,250,000 be cut by 4.5 %, heard two members "
    "against and one for it, and adjourned until the figures of the second quarter are known. " * 2,
)


def check_once(
    computed: LocalModel, model: ModelDescription, recipe: EmbeddingRecipe, library: str
) -> None:
    """Compare a backend's vectors with float32 ones; the outcome is kept for this machine.

    The float32 ones come from numpy where it knows the architecture, else from torch.

    Args:
        computed: the model as the backend has it.
        model: what its files say.
        recipe: pins the weights and the dtype.
        library: version of what computes.

    Raises:
        UnsupportedModelError: it is below what rounding explains.
    """
    facts = [recipe.revision, recipe.dtype, library, cpu_name(), sorted(cpu_flags())]
    name = f"check-{computed.backend}-{fingerprint_of([*facts, TEXTS])}"

    def make(folder: Path) -> None:
        least = least_cosine(computed, model, recipe)
        near = NEAR_INT8 if recipe.dtype == "int8" else NEAR
        if not least >= near:
            raise UnsupportedModelError(
                f"{computed.backend} computes other vectors for {recipe.model} than float32 does: "
                f"cosine {least:.5f}, at least {near} is asked for",
                hint="set embedder.backend to torch",
            )
        record = {"cosine": least, "model": recipe.model, "dtype": recipe.dtype, "cpu": cpu_name()}
        (folder / "check.json").write_bytes(orjson.dumps(record))

    made_once(name, make)


def least_cosine(computed: LocalModel, model: ModelDescription, recipe: EmbeddingRecipe) -> float:
    """Of the vectors of all texts, to those of float32."""
    tokenizer = load_tokenizer(model.location.directory)
    # Longer ones show nothing more, and numpy takes its time for them.
    tokenizer.enable_truncation(min(128, recipe.max_tokens))
    texts: list[TokenIds] = list(tokenizer.encode_batch(list(TEXTS)))
    fast, exact = computed.pooled(texts, 0), _exact(texts, model)
    lengths = np.linalg.norm(fast, axis=1) * np.linalg.norm(exact, axis=1)
    return float(np.min(np.sum(fast * exact, axis=1) / lengths))


def _exact(texts: Sequence[TokenIds], model: ModelDescription) -> Vectors:
    steps = head_of(model.modules)
    try:
        weights = EncoderWeights(model.location.directory)
        alone = [token_vectors(weights, text.ids)[None] for text in texts]
    except UnsupportedModelError:
        from embedmill.local_models.torch_loading import load_with_library

        return load_with_library(model, "cpu", "float32").pooled(texts, 0)
    vectors = [pool(steps, each, np.ones(each.shape[:2], np.int64)) for each in alone]
    return np.concatenate(vectors)
