"""Settings in, a recipe or a live embedder out; a backend is imported only where it is chosen."""

from __future__ import annotations

from typing import assert_never

from embedmill.cohere_settings import CohereEmbedderSettings, cohere_recipe
from embedmill.compatible_settings import CompatibleEmbedderSettings, compatible_recipe
from embedmill.embedder import Embedder
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.embedders.word_tokenizer import WordTokenizer
from embedmill.extras import extra
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.plugins import ProviderPluginSettings, provider_of
from embedmill.rate_assembly import own_limiter
from embedmill.rate_limiter import RateLimiter
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.settings import (
    EmbedderSettings,
    HashingEmbedderSettings,
    SentenceTransformersSettings,
)
from embedmill.tokenizer import TokenWindow
from embedmill.voyage_settings import VoyageEmbedderSettings, voyage_recipe

# Of requests to a server.
_REMOTE = ("httpx2", "msgspec", "pybase64", "simdjson", "urllib3")


def embedding_recipe(settings: EmbedderSettings, metric: Metric) -> EmbeddingRecipe:  # noqa: PLR0911, one for each kind
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
        case CompatibleEmbedderSettings():
            return compatible_recipe(settings, metric)
        case VoyageEmbedderSettings():
            return voyage_recipe(settings, metric)
        case CohereEmbedderSettings():
            return cohere_recipe(settings, metric)
        case ProviderPluginSettings():
            return provider_of(settings).recipe(settings, metric)
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
            return _remote_window(settings.tokenizer, settings.max_tokens)
        case CompatibleEmbedderSettings():
            return _remote_window(settings.tokenizer, settings.max_tokens, settings.document_prompt)
        case VoyageEmbedderSettings() | CohereEmbedderSettings():
            return _remote_window(settings.tokenizer, settings.window)
        case ProviderPluginSettings():
            return provider_of(settings).window(settings)
        case _:
            assert_never(settings)


def _remote_window(tokenizer: str, size: int, document_prompt: str = "") -> TokenWindow:
    from embedmill.openai_tokens import token_counter

    return TokenWindow(token_counter(tokenizer), size, document_prompt)


def build_embedder(  # noqa: PLR0911, one for each kind
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
            with extra("this embedder", "pip install 'embedmill[openai]'", _REMOTE):
                from embedmill.embedders.openai import openai_embedder

            return openai_embedder(settings, recipe, limiter or own_limiter(settings))
        case CompatibleEmbedderSettings():
            with extra("this embedder", "pip install 'embedmill[openai]'", _REMOTE):
                from embedmill.embedders.openai import compatible_embedder

            return compatible_embedder(settings, recipe, limiter or own_limiter(settings))
        case VoyageEmbedderSettings():
            with extra("this embedder", "pip install 'embedmill[voyage]'", _REMOTE):
                from embedmill.embedders.voyage import voyage_embedder

            return voyage_embedder(settings, recipe, limiter or own_limiter(settings))
        case CohereEmbedderSettings():
            with extra("this embedder", "pip install 'embedmill[cohere]'", _REMOTE):
                from embedmill.embedders.cohere import cohere_embedder

            return cohere_embedder(settings, recipe, limiter or own_limiter(settings))
        case ProviderPluginSettings():
            return provider_of(settings).build(settings, recipe)
        case _:
            assert_never(settings)
