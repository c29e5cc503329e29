"""What one write to Weaviate may hold; read without loading its client."""

from __future__ import annotations

from embedmill.vector_store import StoreLimits
from embedmill.weaviate_settings import WeaviateSettings

# As for a Qdrant server: a record of that size, twice for its text and its tokens, stays far below
# the 100 MB that a server takes in one message.
PAYLOAD_BYTES = 8 * 2**20


def weaviate_limits(settings: WeaviateSettings) -> StoreLimits:
    """What one write may hold; the server's own limit of a message may lower it further."""
    return StoreLimits(
        records=settings.records_per_request,
        request_bytes=settings.request_bytes,
        payload_bytes=PAYLOAD_BYTES,
        writers=settings.writers,
    )
