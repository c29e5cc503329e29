"""Settings in, a recipe or a live embedder out; a backend is imported only where it is chosen."""

from __future__ import annotations

from typing import assert_never

from embedmill.embedder import Embedder
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.embedders.word_tokenizer import WordTokenizer
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.rate_assembly import own_limiter
from embedmill.rate_limiter import RateLimiter
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.settings import (
    EmbedderSettings,
    HashingEmbedderSettings,
    SentenceTransformersSettings,
)
from embedmill.tokenizer import TokenWindow


def embedding_recipe(settings: EmbedderSettings, metric: Metric) -> EmbeddingRecipe:
    """What the settings ask for; no model is loaded.

    Raises:
        SettingsError: the model does not have what the settings ask for.
        MissingExtraError: an optional package is not installed.
        RefusedError: the model is nowhere to be found.
    """
    match settings:
        case HashingEmbedderSettings():
            return hashing_recipe(settings, metric)
        case SentenceTransformersSettings():
            from embedmill.embedders.local_recipe import local_recipe

            return local_recipe(settings, metric)
        case OpenAIEmbedderSettings():
            return openai_recipe(settings, metric)
        case _:
            assert_never(settings)


def token_window(settings: EmbedderSettings) -> TokenWindow:
    """How the embedder counts and how much it reads; no model is loaded.

    Raises:
        RefusedError: as :func:`embedding_recipe`.
    """
    match settings:
        case HashingEmbedderSettings():
            return TokenWindow(WordTokenizer(), settings.max_tokens, settings.document_prompt)
        case SentenceTransformersSettings():
            from embedmill.embedders.local_recipe import local_window

            return local_window(settings)
        case OpenAIEmbedderSettings():
            from embedmill.openai_tokens import token_counter

            return TokenWindow(token_counter(settings.tokenizer), settings.max_tokens, "")
        case _:
            assert_never(settings)


def build_embedder(
    settings: EmbedderSettings, recipe: EmbeddingRecipe, limiter: RateLimiter | None = None
) -> Embedder:
    """Load the model, to compute as ``recipe`` says and in no other way.

    Args:
        settings: of the embedder.
        recipe: of the vectors.
        limiter: of requests to a provider; without it this embedder keeps to the limits alone.

    Raises:
        MissingExtraError: an optional package is not installed.
        RecipeMismatchError: the weights found are not those of the recipe.
        RefusedError: the model is nowhere to be found.
    """
    match settings:
        case HashingEmbedderSettings():
            return HashingEmbedder(settings, recipe)
        case SentenceTransformersSettings():
            from embedmill.embedders.local import LocalEmbedder

            return LocalEmbedder(settings, recipe)
        case OpenAIEmbedderSettings():
            from embedmill.embedders.openai import OpenAIEmbedder

            return OpenAIEmbedder(settings, recipe, limiter=limiter or own_limiter(settings))
        case _:
            assert_never(settings)
