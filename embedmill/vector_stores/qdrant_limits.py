"""What one write to a Qdrant server may hold; read without loading its client."""

from __future__ import annotations

from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.vector_store import StoreLimits

# What the embedded store takes. With the longest vector Qdrant knows (65,536 components of 16
# bytes) a record of that size still fits the 32 MiB that a server takes at once.
PAYLOAD_BYTES = 8 * 2**20


def qdrant_limits(settings: QdrantServerSettings) -> StoreLimits:
    """What one write may hold; the server's own strict mode may lower it further."""
    return StoreLimits(
        records=settings.records_per_request,
        request_bytes=settings.request_bytes,
        payload_bytes=PAYLOAD_BYTES,
        writers=settings.writers,
    )
