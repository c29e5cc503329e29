"""The recipe and the window of a local model, from its files alone."""

from __future__ import annotations

from embedmill.embedders.model_files import ModelDescription, describe_model, model_revision
from embedmill.embedders.model_location import locate_model
from embedmill.embedders.model_tokenizer import ModelTokenizer
from embedmill.processors import cpu_flags, has_nvidia_driver, multiplies_bfloat16
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.settings import SentenceTransformersSettings
from embedmill.tokenizer import TokenWindow


def local_recipe(settings: SentenceTransformersSettings, metric: Metric) -> EmbeddingRecipe:
    """All that decides the vectors of a local model; see :func:`resolve_dtype` for the dtype."""
    model = describe_model(locate_model(settings), settings)
    return EmbeddingRecipe(
        provider="sentence_transformers",
        model=model.location.name,
        revision=model_revision(model.location),
        dimension=model.dimension,
        dtype=resolve_dtype(settings.dtype, settings.device, cpu_flags()),
        normalise=_normalises(model, metric),
        document_prompt=model.document_prompt,
        query_prompt=model.query_prompt,
        max_tokens=model.window,
        metric=metric,
    )


def local_window(settings: SentenceTransformersSettings) -> TokenWindow:
    """How a local model counts and how much it reads."""
    model = describe_model(locate_model(settings), settings)
    counter = ModelTokenizer(model.location.directory)
    return TokenWindow(counter, model.window, model.document_prompt)


def resolve_dtype(dtype: str, device: str, flags: frozenset[str]) -> str:
    """The numeric type that ``auto`` means.

    ``bfloat16`` on CUDA, and on a CPU that multiplies it in hardware (1.8 to 3.1 times the rate of
    float32 for MiniLM, cosine to float32 above 0.9999); else ``float32``, as emulation is slower
    than that. Device ``auto`` counts as CUDA where an NVIDIA driver is present. This is decided
    once, where the index version is planned; workers compute in what the recipe says.
    """
    if dtype != "auto":
        return dtype
    on_gpu = device.startswith("cuda") or (device == "auto" and has_nvidia_driver())
    on_fast_cpu = device in {"auto", "cpu"} and multiplies_bfloat16(flags)
    return "bfloat16" if on_gpu or on_fast_cpu else "float32"


def _normalises(model: ModelDescription, metric: Metric) -> bool:
    """Always, but for a model that was trained for the length of its vectors to count."""
    return model.normalises or not (metric == "dot" and model.similarity == "dot")
