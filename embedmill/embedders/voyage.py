"""The embedder of Voyage.

Without Voyage's own client: that drops the index of each vector and does not count them.
"""

from __future__ import annotations

from typing import Any

from embedmill.embedders.indexed_endpoint import IndexedEndpoint
from embedmill.embedders.json_requests import JsonRequests
from embedmill.embedders.remote import PATIENT, READING, RemoteEmbedder, RequestLimits, Waiting
from embedmill.openai_vectors import VectorForm
from embedmill.rate_limiter import RateLimiter
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings_file import resolve_secret
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
    limits = RequestLimits(
        texts=settings.inputs_per_request,
        tokens=settings.request_tokens,
        tokenizer=settings.tokenizer,
        under_way=settings.requests_at_a_time,
    )
    requests = JsonRequests(
        f"{settings.base_url.rstrip('/')}/embeddings",
        {"Authorization": f"Bearer {resolve_secret(settings.api_key)}"},
        timeout_s=settings.timeout_s,
        connections=settings.requests_at_a_time + READING,
        now=waiting.now,
        heed=limiter.heed,
    )
    form = VectorForm(renormalise=settings.vector_type != "float")
    return RemoteEmbedder(
        IndexedEndpoint(requests, recipe, body, form), recipe, limits, limiter, waiting
    )
