"""From the files of a model to one that torch computes, checked once on this machine."""

from __future__ import annotations

import logging

import torch

from embedmill.embedders.model_files import ModelDescription
from embedmill.errors import PermanentError, SettingsError
from embedmill.local_models.encoder_weights import EncoderWeights, UnsupportedModelError
from embedmill.local_models.model_head import head_of
from embedmill.local_models.self_check import check_once
from embedmill.local_models.torch import TorchModel
from embedmill.local_models.torch_batch import TorchNetwork
from embedmill.local_models.torch_encoder import TorchEncoder
from embedmill.recipe import EmbeddingRecipe

log = logging.getLogger(__name__)


def load_torch(model: ModelDescription, device_name: str, recipe: EmbeddingRecipe) -> TorchModel:
    """Load a model: of a known architecture from its weights alone, else with its own library.

    Args:
        model: what its files say.
        device_name: ``auto`` for a GPU where there is one.
        recipe: how to compute.

    Raises:
        ModuleNotFoundError: sentence-transformers is needed and not installed.
        SettingsError: there is no such device, or the model is no text transformer.
    """
    name = model.location.name
    try:
        loaded = _from_weights(model, present_device(device_name), recipe)
    except UnsupportedModelError as error:
        log.info("sentence-transformers loads %s: %s", name, error)
        return load_with_library(model, device_name, recipe.dtype)
    try:
        facts = [torch.__version__, *loaded.device_facts()]
        check_once(loaded, model, recipe, " ".join(facts))
    except (UnsupportedModelError, PermanentError) as error:
        # It would be as right by a slower way: worth a look, and no reason to stop.
        log.warning("sentence-transformers loads %s, which is slower: %s", name, error)
        return load_with_library(model, device_name, recipe.dtype)
    return loaded


def load_with_library(model: ModelDescription, device_name: str, dtype: str) -> TorchModel:
    """Load a model of any architecture with sentence-transformers.

    Raises:
        ModuleNotFoundError: it is not installed.
        SettingsError: there is no such device, or the model is no text transformer.
    """
    from embedmill.local_models.torch_modules import TorchModules

    device = present_device(device_name)
    network = TorchModules(model.location, device, getattr(torch, dtype))
    return _on_device(network, device, model)


def _from_weights(
    model: ModelDescription, device: torch.device, recipe: EmbeddingRecipe
) -> TorchModel:
    if device.type not in {"cpu", "cuda"}:
        raise UnsupportedModelError(f"on {device.type} it is not tried")
    steps = head_of(model.modules)
    weights = EncoderWeights(model.location.directory)
    dtype = getattr(torch, recipe.dtype)
    network = TorchEncoder(weights, steps, device, dtype, pad_id=model.pad_id)
    return _on_device(network, device, model)


def _on_device(network: TorchNetwork, device: torch.device, model: ModelDescription) -> TorchModel:
    return TorchModel(network, device, vocabulary=model.vocabulary, window=model.window)


def gpu_names() -> list[str]:
    """The GPUs that torch can use."""
    return [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]


def present_device(name: str) -> torch.device:
    """The device of this name.

    Args:
        name: ``auto`` for the GPU that torch has, else the CPU.

    Raises:
        SettingsError: there is no such device.
    """
    if name == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found or torch.device("cpu")
    try:
        wanted = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f"embedder.device: {name!r} is no device") from error
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    count = counts.get(wanted.type, 0)
    if (wanted.index or 0) >= count:
        raise SettingsError(
            f"embedder.device is {name!r}, but torch {torch.__version__} finds {count} devices "
            f"of the kind {wanted.type!r} here",
            hint="set embedder.device to auto, or install a torch that is built for the GPU",
        )
    return wanted
