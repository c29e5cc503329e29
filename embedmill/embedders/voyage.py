"""The embedder of Voyage.

Without Voyage's own client: that drops the index of each vector and does not count them.
"""

from __future__ import annotations

from typing import Any

from embedmill.embedders.connecting import bearer, connected, request_limits
from embedmill.embedders.indexed_endpoint import IndexedEndpoint
from embedmill.embedders.remote import PATIENT, RemoteEmbedder, Waiting
from embedmill.openai_vectors import VectorForm
from embedmill.rate_limiter import RateLimiter
from embedmill.recipe import EmbeddingRecipe
from embedmill.voyage_settings import VoyageEmbedderSettings


def voyage_embedder(
    settings: VoyageEmbedderSettings,
    recipe: EmbeddingRecipe,
    limiter: RateLimiter,
    waiting: Waiting = PATIENT,
) -> RemoteEmbedder:
    """Voyage's model of the recipe.

    Raises:
        SettingsError: the key is not set, or the address is none.
    """
    body: dict[str, Any] = {
        "model": recipe.model,
        # Voyage would cut a text over the window and not say so.
        "truncation": False,
        "output_dtype": settings.vector_type,
        "encoding_format": "base64",
    }
    if settings.dimensions is not None:
        body["output_dimension"] = settings.dimensions
    limits = request_limits(settings, settings.inputs_per_request, settings.request_tokens)
    requests = connected(settings, "/embeddings", bearer(settings.api_key), limiter, waiting)
    form = VectorForm(renormalise=settings.vector_type != "float")
    return RemoteEmbedder(
        IndexedEndpoint(requests, recipe, body, form), recipe, limits, limiter, waiting
    )
