"""What Voyage's jobs take, and the form of a request; known without an SDK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedmill.batch_provider import BatchLimits
from embedmill.batch_providers.dialect import Dialect
from embedmill.openai_vectors import VectorForm
from embedmill.recipe import EmbeddingRecipe
from embedmill.request_file import RequestTemplate
from embedmill.voyage_models import MOST_INPUTS
from embedmill.voyage_settings import VoyageEmbedderSettings

# As of 29 November 2026 (public preview). Stated by Voyage's documentation (batch inference, rate
# limits) unless said otherwise.
VOYAGE_LIMITS = BatchLimits(
    inputs_per_file=100_000,
    # Stated by secondary sources: 1 GB.
    bytes_per_file=900_000_000,
    inputs_per_request=MOST_INPUTS,
    # Stated: 1 billion over all jobs of the organisation, by Voyage's own count.
    enqueued_tokens=900_000_000,
    # Stated: 100, over all jobs of the organisation.
    jobs_at_a_time=90,
    window_s=12 * 3600,
    # Not stated.
    custom_id_bytes=64,
)

# What is the same for all requests of a job stands beside the file.
VOYAGE_TEMPLATE = RequestTemplate({"body": {}})


def voyage_dialect(recipe: EmbeddingRecipe) -> Dialect:
    """How jobs of a recipe are created."""
    parameters: dict[str, Any] = {
        "model": recipe.model,
        "output_dimension": recipe.dimension,
        "output_dtype": "float" if recipe.dtype == "float32" else recipe.dtype,
        # A text over the window would be cut, and nobody told.
        "truncation": False,
    }
    if recipe.document_input_type:
        parameters["input_type"] = recipe.document_input_type
    return Dialect(
        "voyage",
        "12h",
        creation={"request_params": parameters},
        mark=recipe.id,
        refuses_when_full=True,
        form=VectorForm(renormalise=recipe.dtype != "float32"),
    )


def voyage_limits(settings: VoyageEmbedderSettings) -> BatchLimits:
    """:data:`VOYAGE_LIMITS`, with what the settings say of the model and the account."""
    return replace(
        VOYAGE_LIMITS,
        tokens_per_input=settings.window,
        tokens_per_request=settings.request_tokens,
        enqueued_tokens=settings.enqueued_tokens or VOYAGE_LIMITS.enqueued_tokens,
    )
