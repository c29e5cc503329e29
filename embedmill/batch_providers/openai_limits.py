"""What OpenAI takes, and the form of a request; known without the SDK."""

from __future__ import annotations

from dataclasses import replace

from embedmill.batch_provider import BatchLimits
from embedmill.openai_settings import MAX_TOKENS, OpenAIEmbedderSettings, asked_dimensions
from embedmill.recipe import EmbeddingRecipe
from embedmill.request_file import RequestTemplate

# As of 29 November 2026. Stated by OpenAI's API reference (batches, files, embeddings) and batch
# guide unless said otherwise.
OPENAI_LIMITS = BatchLimits(
    requests_per_file=50_000,
    # Over all lines, so that more texts in a line do not raise it.
    inputs_per_file=50_000,
    # Stated: 200 MB; the server was seen to check 209,715,200. Planned below both.
    bytes_per_file=190_000_000,
    # Stated: 2,048. One bad text fails its line, which then is found by halving.
    inputs_per_request=512,
    tokens_per_input=MAX_TOKENS,
    # Stated: 300,000, by the server's own count.
    tokens_per_request=250_000,
    # By tier and model: 3 million (tier 1) to 4 billion (tier 5); the account's page is authority.
    enqueued_tokens=None,
    # Not documented: 1,000,000 lines were seen to be refused at tier 5.
    enqueued_requests=900_000,
    # Stated: 2,000.
    creations_per_hour=1_800,
    window_s=24 * 3600,
    # Claimed by secondary sources only; shorter is safe anyway.
    custom_id_bytes=64,
)


def request_template(recipe: EmbeddingRecipe, encoding_format: str = "base64") -> RequestTemplate:
    """The constant part of all requests for a recipe.

    base64 makes the results a quarter of the size; a server that does not know it in jobs may send
    lists, which are read as well.
    """
    dimensions = asked_dimensions(recipe.model, recipe.dimension)
    body = {"model": recipe.model, "encoding_format": encoding_format}
    shortened = {} if dimensions is None else {"dimensions": dimensions}
    return RequestTemplate({"method": "POST", "url": "/v1/embeddings", "body": body | shortened})


def limits_of(settings: OpenAIEmbedderSettings) -> BatchLimits:
    """:data:`OPENAI_LIMITS`, with what the settings say of the account and the model."""
    return replace(
        OPENAI_LIMITS,
        inputs_per_request=settings.inputs_per_request,
        tokens_per_request=settings.tokens_per_request,
        tokens_per_input=settings.max_tokens,
        enqueued_tokens=settings.enqueued_tokens,
    )
