"""What another package needs to bring an embedder and a store: settings, and how to build."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field

from embedmill.embedder import EmbeddedTexts, Role
from embedmill.errors import PermanentError
from embedmill.plugins import (
    ProviderPlugin,
    ProviderPluginSettings,
    StorePlugin,
    StorePluginSettings,
)
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.tokenizer import TokenWindow
from embedmill.vector_store import StoreLimits, VectorStore


class AcmeSettings(ProviderPluginSettings):
    """Acme's vectors: how often each pair of letters stands in a text."""

    kind: Literal["acme"]
    window: int = Field(default=64, gt=0, description="Words that are read.")


class Words:
    """Counts words."""

    fingerprint = "acme-words"

    @property
    def sizer(self):
        return lambda text: len(text.split())

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class AcmeEmbedder:
    """Pairs of letters, 27 times 27 of them."""

    def __init__(self, settings: AcmeSettings, recipe: EmbeddingRecipe) -> None:
        self.recipe = recipe

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        vectors = np.full((len(texts), self.recipe.dimension), np.nan, np.float32)
        failures, tokens, truncated = {}, 0, 0
        for row, text in enumerate(texts):
            words = text.split()
            if not words:
                failures[row] = PermanentError("the text is blank", code="blank")
                continue
            truncated += len(words) > self.recipe.max_tokens
            seen = words[: self.recipe.max_tokens]
            tokens += len(seen)
            vectors[row] = self._vector(" ".join(seen).lower())
        return EmbeddedTexts(vectors, failures, tokens, truncated)

    def _vector(self, text: str) -> np.ndarray:
        codes = [ord(letter) % 27 for letter in f" {text} "]
        counts = np.zeros(self.recipe.dimension, np.float32)
        np.add.at(counts, [a * 27 + b for a, b in pairwise(codes)], 1)
        return counts / np.linalg.norm(counts)


def recipe(settings: AcmeSettings, metric: Metric) -> EmbeddingRecipe:
    return EmbeddingRecipe(
        provider="acme",
        model="letter-pairs",
        revision="1",
        dimension=27 * 27,
        dtype="float32",
        normalise=True,
        document_prompt="",
        query_prompt="",
        max_tokens=settings.window,
        metric=metric,
    )


class ShelfSettings(StorePluginSettings):
    """Acme's shelf: records in this process, or in a folder where one is named."""

    kind: Literal["acme_shelf"]
    path: str = Field(description="Folder on a local disk.")


def open_shelf(settings: ShelfSettings) -> VectorStore:
    # A real package has a client of its own here; ours would do for nobody.
    from embedmill.settings import QdrantEmbeddedSettings
    from embedmill.vector_stores.qdrant_embedded import QdrantEmbeddedStore

    return QdrantEmbeddedStore(QdrantEmbeddedSettings(kind="qdrant_embedded", path=settings.path))


PROVIDER = ProviderPlugin(
    AcmeSettings,
    recipe,
    lambda settings: TokenWindow(Words(), settings.window),
    AcmeEmbedder,
    examples=(AcmeSettings(kind="acme"), AcmeSettings(kind="acme", window=20)),
)
STORE = StorePlugin(
    ShelfSettings,
    lambda settings: StoreLimits(records=100, request_bytes=2**20, payload_bytes=2**18, writers=1),
    open_shelf,
    lambda folder: ShelfSettings(kind="acme_shelf", path=str(folder / "shelf")),
)


class ImpostorSettings(ProviderPluginSettings):
    """Wants a name that is taken."""

    kind: Literal["hashing"]


IMPOSTOR = ProviderPlugin(ImpostorSettings, recipe, PROVIDER.window, AcmeEmbedder)
