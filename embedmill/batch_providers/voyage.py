"""Embedding jobs at Voyage: OpenAI's files and batches, with the model beside the file.

Voyage's own client has neither files nor batches; OpenAI's has both, and sends what it is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from embedmill.batch_providers.openai import OpenAIBatchProvider
from embedmill.batch_providers.voyage_limits import voyage_dialect, voyage_limits
from embedmill.recipe import EmbeddingRecipe
from embedmill.voyage_settings import VoyageEmbedderSettings


def voyage_provider(
    settings: VoyageEmbedderSettings,
    recipe: EmbeddingRecipe,
    *,
    read_retries: int = 2,
    sleep: Callable[[float], None] = time.sleep,
) -> OpenAIBatchProvider:
    """Voyage's jobs for a recipe.

    Raises:
        SettingsError: the key is not set.
    """
    return OpenAIBatchProvider(
        settings,
        recipe,
        voyage_dialect(recipe),
        limits=voyage_limits(settings),
        read_retries=read_retries,
        sleep=sleep,
    )
