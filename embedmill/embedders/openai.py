"""The embedders of OpenAI and of servers that speak its language."""

from __future__ import annotations

import os
from typing import Any

from embedmill.compatible_settings import CompatibleEmbedderSettings
from embedmill.embedders.connecting import bearer, connected, request_limits
from embedmill.embedders.indexed_endpoint import IndexedEndpoint
from embedmill.embedders.remote import PATIENT, RemoteEmbedder, Waiting
from embedmill.openai_settings import OpenAIEmbedderSettings, asked_dimensions
from embedmill.openai_vectors import VectorForm
from embedmill.rate_limiter import RateLimiter
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret

# As OpenAI's own client reads them.
_HEADER_VARIABLES = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}


def openai_embedder(
    settings: OpenAIEmbedderSettings,
    recipe: EmbeddingRecipe,
    limiter: RateLimiter,
    waiting: Waiting = PATIENT,
) -> RemoteEmbedder:
    """OpenAI's model of the recipe.

    Raises:
        SettingsError: the key is not set, or the address is none.
    """
    headers = bearer(settings.api_key)
    for header, variable in _HEADER_VARIABLES.items():
        if os.environ.get(variable):
            headers[header] = os.environ[variable]
    body: dict[str, Any] = {"model": recipe.model, "encoding_format": settings.encoding_format}
    dimensions = asked_dimensions(recipe.model, recipe.dimension)
    if dimensions is not None:
        body["dimensions"] = dimensions
    limits = request_limits(settings, settings.inputs_per_request, settings.tokens_per_request)
    requests = connected(settings, "/embeddings", headers, limiter, waiting)
    return RemoteEmbedder(IndexedEndpoint(requests, recipe, body), recipe, limits, limiter, waiting)


def compatible_embedder(
    settings: CompatibleEmbedderSettings,
    recipe: EmbeddingRecipe,
    limiter: RateLimiter,
    waiting: Waiting = PATIENT,
) -> RemoteEmbedder:
    """The model of the recipe behind a server that speaks OpenAI's language.

    Raises:
        SettingsError: the key is not set, or the address is none.
    """
    body: dict[str, Any] = {"model": recipe.model, "encoding_format": settings.encoding_format}
    if settings.shorten == "server":
        body["dimensions"] = recipe.dimension
    cut = settings.shorten == "client"
    form = VectorForm(cut, renormalise=settings.renormalise or (cut and recipe.normalise))
    profile = settings.profile
    limits = request_limits(
        settings,
        settings.request_inputs,
        settings.tokens_per_request or profile.tokens_per_request,
    )
    requests = connected(settings, "/embeddings", _key_headers(settings), limiter, waiting)
    return RemoteEmbedder(
        IndexedEndpoint(requests, recipe, body, form), recipe, limits, limiter, waiting
    )


def _key_headers(settings: CompatibleEmbedderSettings) -> dict[str, str]:
    if settings.api_key is None:
        return {}
    key = resolve_secret(settings.api_key)
    header = settings.profile.key_header
    return {header: f"Bearer {key}" if header == "authorization" else key}
