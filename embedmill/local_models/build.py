"""Which backend computes a local model, and how it is loaded."""

from __future__ import annotations

import logging
from importlib.metadata import version
from importlib.util import find_spec
from typing import assert_never

from embedmill.embedders.model_files import ModelDescription
from embedmill.embedders.model_location import INSTALL_LOCAL
from embedmill.errors import MissingExtraError, SettingsError
from embedmill.extras import extra
from embedmill.local_model import Backend, LocalModel
from embedmill.local_models.encoder_weights import UnsupportedModelError
from embedmill.local_models.self_check import check_once
from embedmill.processors import has_nvidia_driver
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import SentenceTransformersSettings

log = logging.getLogger(__name__)
INSTALL_CPU = "pip install 'embedmill[cpu]'"
INSTALL_ONNX = "pip install 'embedmill[onnx]'"
# What needs a backend.
_WHAT = "embedder.backend"
_PACKAGES: dict[Backend, str] = {
    "openvino": "openvino",
    "torch": "torch",
    "onnx": "onnxruntime",
}


def load_local_model(
    model: ModelDescription, settings: SentenceTransformersSettings, recipe: EmbeddingRecipe
) -> LocalModel:
    """Load a model, to compute as the recipe says.

    Raises:
        MissingExtraError: what is needed for it is not installed.
        SettingsError: the backend cannot compute the model; the message says why.
    """
    if settings.backend != "auto":
        return _load(settings.backend, model, settings, recipe)
    reasons = []
    for backend in preferred_backends(settings.device, recipe.dtype):
        try:
            return _load(backend, model, settings, recipe)
        except (UnsupportedModelError, MissingExtraError) as error:
            reasons.append(f"{backend}: {error}")
            log.info("%s does not load %s: %s", backend, model.location.name, error)
    found = "; ".join(reasons) or "none of openvino, torch and onnxruntime is installed"
    raise MissingExtraError(
        f"nothing here computes {model.location.name!r} in {recipe.dtype}: {found}",
        hint=f"{INSTALL_CPU}, or {INSTALL_LOCAL} for any model and for GPUs",
    )


def preferred_backends(device: str, dtype: str) -> list[Backend]:
    """What ``auto`` tries, of what is installed, the fastest first.

    On two Zen 4 and Zen 5 cores, MiniLM, chunks of 200 tokens: OpenVINO 144 a second in bfloat16
    and 80 in float32; torch 83 and 27; ONNX Runtime 60 in float32, which is all that it has.
    """
    on_cpu = device == "cpu" or (device == "auto" and not has_nvidia_driver())
    order: tuple[Backend, ...] = ("torch",)
    if dtype == "int8":
        order = ("openvino",)
    elif on_cpu:
        order = (
            ("openvino", "onnx", "torch") if dtype == "float32" else ("openvino", "torch", "onnx")
        )
    return [backend for backend in order if find_spec(_PACKAGES[backend])]


def _load(
    backend: Backend,
    model: ModelDescription,
    settings: SentenceTransformersSettings,
    recipe: EmbeddingRecipe,
) -> LocalModel:
    if recipe.dtype == "int8" and backend != "openvino":
        raise SettingsError(
            f"the index was built in int8, which {backend} does not compute",
            hint="set embedder.backend to openvino or auto",
        )
    match backend:
        case "torch":
            return _load_torch(model, settings, recipe)
        case "openvino":
            with extra(_WHAT, INSTALL_CPU, ("openvino",)):
                from embedmill.local_models.openvino_loading import load_openvino

            return load_openvino(model, recipe, settings.streams)
        case "onnx":
            with extra(_WHAT, INSTALL_ONNX, ("onnxruntime",)):
                from embedmill.local_models.onnx import OnnxModel

            loaded = OnnxModel(model)
            check_once(loaded, model, recipe, version("onnxruntime"))
            return loaded
        case _:
            assert_never(backend)


def _load_torch(
    model: ModelDescription, settings: SentenceTransformersSettings, recipe: EmbeddingRecipe
) -> LocalModel:
    with extra(_WHAT, INSTALL_LOCAL, ("torch", "sentence_transformers")):
        from embedmill.local_models.torch_loading import load_torch

        loaded = load_torch(model, settings.device, recipe)
    device = loaded.device_facts()
    if device and not settings.batch_size:
        loaded.take_best_batch([recipe.revision, recipe.dtype, *device])
    return loaded
