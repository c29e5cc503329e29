"""What Cohere's embed jobs and batches take, and the form of a request; known without an SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from embedmill.batch_provider import BatchLimits
from embedmill.cohere_models import MOST_INPUTS
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.recipe import EmbeddingRecipe
from embedmill.request_file import RequestTemplate

# As of 29 November 2026. Stated by Cohere's API reference (datasets, embed jobs) and guides unless
# said otherwise.
COHERE_LIMITS = BatchLimits(
    # Not stated; so that a job is not larger than elsewhere.
    requests_per_file=50_000,
    inputs_per_file=50_000,
    # Stated: 1.5 GB for a dataset, 10 GB for all of an organisation.
    bytes_per_file=1_400_000_000,
    # A line of a dataset is one text.
    inputs_per_request=1,
    custom_id_bytes=64,
    # Stated: no partial output, what was done is billed.
    cancelled_rows_are_kept=False,
)
# The same for its batches, as of the same day. Cohere states neither their limits nor what becomes
# of one that is cancelled: nothing is cancelled that is still wanted.
BATCH_LIMITS = replace(COHERE_LIMITS, inputs_per_request=MOST_INPUTS)
# Kept by the job beside each vector.
KEPT_FIELD = "chunk_id"


class DatasetTemplate:
    """Lines of a dataset: an id that is kept, and one text."""

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """What stands before the id, between id and text, and after the text; a line's end."""
        return f'{{"{KEPT_FIELD}":'.encode(), b',"text":', b"}\n"

    def encoded(self, texts: Sequence[str]) -> bytes:
        """The text as JSON.

        Raises:
            TypeError: it is not Unicode.
        """
        (text,) = texts
        return orjson.dumps(text)

    def split(self, line: bytes) -> tuple[object, object]:
        """The id and the texts of a line.

        Raises:
            ValueError: it is not JSON, or has other fields.
        """
        record = orjson.loads(line)
        if not isinstance(record, dict) or record.keys() != {KEPT_FIELD, "text"}:
            raise ValueError(f"not the fields {KEPT_FIELD} and text")
        return record[KEPT_FIELD], [record["text"]]


def cohere_limits(settings: CohereEmbedderSettings) -> BatchLimits:
    """:data:`COHERE_LIMITS`, with what is known of the model."""
    return replace(COHERE_LIMITS, tokens_per_input=settings.window)


def batch_limits(settings: CohereEmbedderSettings) -> BatchLimits:
    """:data:`BATCH_LIMITS`, with what is known of the model."""
    return replace(
        BATCH_LIMITS,
        inputs_per_request=settings.inputs_per_request,
        tokens_per_input=settings.window,
        tokens_per_request=settings.tokens_per_request,
    )


def batch_template(recipe: EmbeddingRecipe) -> RequestTemplate:
    """The constant part of all requests of a batch for a recipe."""
    body = {
        "input_type": recipe.document_input_type,
        "embedding_types": ["float"],
        # A text over the window would be cut, and nobody told.
        "truncate": "NONE",
    }
    return RequestTemplate({"body": body}, texts="texts")
