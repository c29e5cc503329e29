"""Is this machine fit for the work? A finding says what is so, and what to type if it is not."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Literal

import psutil

from embedmill.assembly import build_source, recipes_of, store_of, workspace_of
from embedmill.embedders.build import build_embedder
from embedmill.embedders.local import LocalEmbedder
from embedmill.embedders.local_recipe import resolve_dtype
from embedmill.errors import EmbedmillError
from embedmill.extras import release
from embedmill.local_models.build import preferred_backends
from embedmill.made_once import cache_folder
from embedmill.plain_numbers import number_of
from embedmill.processors import (
    cpu_flags,
    cpu_name,
    has_nvidia_driver,
    multiplies_bfloat16,
    usable_cores,
)
from embedmill.rate_assembly import rate_budget_of, require_keeper
from embedmill.settings import SentenceTransformersSettings, Settings

Verdict = Literal["ok", "note", "bad"]
# What each extra brings, by the module that it is recognised by.
_EXTRAS = {
    "cpu": ("openvino", "local models on CPUs, without torch and faster"),
    "local": ("sentence_transformers", "any local model, and GPUs"),
    "onnx": ("onnxruntime", "local models that come as ONNX files"),
    "int8": ("nncf", "embedder.dtype int8"),
    "openai": ("openai", "OpenAI's and Voyage's models, and compatible servers"),
    "cohere": ("fastavro", "Cohere's models"),
    "qdrant": ("qdrant_client", "Qdrant servers"),
    "pinecone": ("pinecone", "Pinecone"),
    "weaviate": ("weaviate", "Weaviate servers"),
    "redis": ("redis", "rate limits that several clusters share"),
}
# A model of some hundred megabytes, its compiled form, and Ray's shared memory.
_LITTLE_MEMORY = 3 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: what, in a word or two.
        verdict: ``bad`` needs a remedy before anything works; ``note`` is worth knowing.
        text: what is so.
        remedy: what to type; empty when there is nothing to do.
    """

    topic: str
    verdict: Verdict
    text: str
    remedy: str = ""


def examine_machine() -> Iterator[Finding]:
    """What holds for every index."""
    yield Finding(
        "embedmill", "ok", f"{release()}, Python {platform.python_version()} at {sys.prefix}"
    )
    yield _cores()
    yield _memory()
    yield from _extras()
    yield _gpu()
    yield _local_models()
    yield _cache()


def examine_index(settings: Settings) -> Iterator[Finding]:
    """What the settings of one index need: its model, workspace, source and store."""
    for topic, examine in (
        ("workspace", _workspace),
        ("source", _source),
        ("model", _model),
        ("store", _store),
        ("rates", _rates),
    ):
        try:
            yield Finding(topic, "ok", examine(settings))
        except EmbedmillError as error:
            yield Finding(topic, "bad", str(error), error.hint)


def _cores() -> Finding:
    cores, all_cores = usable_cores(), os.cpu_count() or 1
    fast = "multiplies bfloat16" if multiplies_bfloat16(cpu_flags()) else "float32 only"
    text = f"{cores} of {all_cores} cores, {cpu_name() or platform.machine()}, {fast}"
    return Finding("processor", "ok", text)


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    text = f"{free / 2**30:.1f} GiB free"
    if free < _LITTLE_MEMORY:
        remedy = "add --local, or set run.embed_workers and run.object_store_bytes lower"
        return Finding("memory", "note", text, remedy)
    return Finding("memory", "ok", text)


def _extras() -> Iterator[Finding]:
    for extra, (module, purpose) in _EXTRAS.items():
        if find_spec(module):
            yield Finding(f"extra {extra}", "ok", f"installed: {purpose}")
        else:
            remedy = f"pip install 'embedmill[{extra}]'"
            yield Finding(f"extra {extra}", "note", f"not installed: {purpose}", remedy)


def _gpu() -> Finding:
    if not has_nvidia_driver():
        return Finding("gpu", "ok", "none with an NVIDIA driver; models run on the CPU")
    if not find_spec("torch"):
        remedy = "pip install 'embedmill[local]'"
        return Finding("gpu", "bad", "an NVIDIA driver is here, but no torch to use it", remedy)
    from embedmill.local_models.torch_loading import gpu_names

    names = gpu_names()
    if names:
        return Finding("gpu", "ok", f"{len(names)}: {', '.join(names)}")
    return Finding(
        "gpu",
        "bad",
        f"an NVIDIA driver is here, but torch {metadata.version('torch')} finds no GPU",
        "install a torch that is built for the driver's CUDA, or set embedder.device: cpu",
    )


def _local_models() -> Finding:
    found = preferred_backends("auto", resolve_dtype("auto", "auto", cpu_flags()))
    if not found:
        remedy = "pip install 'embedmill[cpu]'"
        return Finding("local models", "note", "nothing here computes them", remedy)
    first, *others = found
    behind = f"; then {', '.join(others)}" if others else ""
    return Finding("local models", "ok", f"embedder.backend auto means {first}{behind}")


def _cache() -> Finding:
    folder = cache_folder()
    parent = next(each for each in (folder, *folder.parents) if each.exists())
    if os.access(parent, os.W_OK):
        return Finding("cache", "ok", str(folder))
    remedy = "export EMBEDMILL_CACHE=/a/folder/that/can/be/written"
    return Finding("cache", "note", f"{folder} cannot be written to", remedy)


def _workspace(settings: Settings) -> str:
    workspace = workspace_of(settings)
    path = f"doctor/{socket.gethostname().replace('.', '-')}-{os.getpid()}"
    workspace.replace(path, b"may be deleted")
    workspace.delete([path])
    return f"{settings.workspace.url} can be written to"


def _source(settings: Settings) -> str:
    splits = sum(1 for _ in build_source(settings).splits())
    return f"{settings.source.path} has something to read ({number_of(splits, 'split')})"


def _model(settings: Settings) -> str:
    recipe = recipes_of(settings)[1]
    text = f"{recipe.model}, {recipe.dimension} dimensions, {recipe.dtype}"
    if isinstance(settings.embedder, SentenceTransformersSettings):
        embedder = build_embedder(settings.embedder, recipe)
        assert isinstance(embedder, LocalEmbedder)
        text += f", computed by {embedder.model.backend}"
    return text


def _rates(settings: Settings) -> str:
    budget = rate_budget_of(settings.embedder)
    if budget is None:
        return "nobody is asked who has a limit"
    require_keeper(settings.embedder)
    limits = (
        (budget.requests_per_minute, "requests a minute"),
        (budget.tokens_per_minute, "tokens a minute"),
        (budget.inputs_per_minute, "texts a minute"),
        (budget.concurrent_requests, "requests at a time"),
    )
    told = ", ".join(f"{limit:,} {what}" for limit, what in limits if limit is not None)
    return f"{told or 'no limits are stated'}, kept by {budget.shared_by.kind}"


def _store(settings: Settings) -> str:
    with closing(store_of(settings)) as store:
        count = len(store.collections())
    return f"{settings.store.kind} answers, {number_of(count, 'collection')}"
