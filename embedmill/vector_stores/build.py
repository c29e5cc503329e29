"""Settings in, a live store out; a backend is imported only where it is chosen."""

from __future__ import annotations

from typing import assert_never

from embedmill.extras import extra
from embedmill.pinecone_settings import PineconeSettings
from embedmill.plugins import StorePluginSettings, store_of
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.settings import (
    DiscardStoreSettings,
    MemoryStoreSettings,
    QdrantEmbeddedSettings,
    StoreSettings,
)
from embedmill.throttle import RequestPace, at_once
from embedmill.vector_store import StoreLimits, VectorStore
from embedmill.weaviate_settings import WeaviateSettings

# What to type, and the modules that are there then.
_QDRANT_EDGE = 'pip install "qdrant-edge-py>=0.9,<0.10"', ("qdrant_edge",)
_QDRANT = "pip install 'embedmill[qdrant]'", ("qdrant_client", "httpx", "grpc")
_PINECONE = "pip install 'embedmill[pinecone]'", ("pinecone", "httpx")
_WEAVIATE = "pip install 'embedmill[weaviate]'", ("weaviate", "httpx", "grpc")


def open_store(  # noqa: PLR0911, one for each kind
    settings: StoreSettings, pace: RequestPace = at_once
) -> VectorStore:
    """Open the store that the settings describe, where it is used: stores never travel.

    Args:
        settings: of the store.
        pace: of the requests that write; stores without requests have no use for it.

    Raises:
        IndexLockedError: another process, or another part of this one, has the folder.
        MissingExtraError: an optional package is not installed.
        StopRunError: the folder cannot be used (full disk, read-only, rights).
    """
    match settings:
        case QdrantEmbeddedSettings():
            with extra("this store", *_QDRANT_EDGE):
                from embedmill.vector_stores.qdrant_embedded import QdrantEmbeddedStore

            return QdrantEmbeddedStore(settings)
        case QdrantServerSettings():
            with extra("this store", *_QDRANT):
                from embedmill.vector_stores.qdrant import QdrantStore

            return QdrantStore(settings, pace=pace)
        case PineconeSettings():
            with extra("this store", *_PINECONE):
                from embedmill.vector_stores.pinecone import PineconeStore

            return PineconeStore(settings, pace=pace)
        case WeaviateSettings():
            with extra("this store", *_WEAVIATE):
                from embedmill.vector_stores.weaviate import WeaviateStore

            return WeaviateStore(settings, pace=pace)
        case MemoryStoreSettings():
            from embedmill.vector_stores.memory import MemoryStore

            return MemoryStore(settings)
        case DiscardStoreSettings():
            from embedmill.vector_stores.discard import DiscardStore

            return DiscardStore(settings)
        case StorePluginSettings():
            return store_of(settings).open(settings)
        case _:
            assert_never(settings)


def store_limits(settings: StoreSettings) -> StoreLimits:  # noqa: PLR0911, one for each kind
    """What one write to that store may hold, without opening it."""
    match settings:
        case QdrantEmbeddedSettings():
            with extra("this store", *_QDRANT_EDGE):
                from embedmill.vector_stores.qdrant_embedded_upserts import QDRANT_EMBEDDED_LIMITS

            return QDRANT_EMBEDDED_LIMITS
        case QdrantServerSettings():
            from embedmill.vector_stores.qdrant_limits import qdrant_limits

            return qdrant_limits(settings)
        case PineconeSettings():
            with extra("this store", *_PINECONE):
                from embedmill.vector_stores.pinecone import pinecone_limits

            return pinecone_limits(settings)
        case WeaviateSettings():
            from embedmill.vector_stores.weaviate_limits import weaviate_limits

            return weaviate_limits(settings)
        case MemoryStoreSettings():
            from embedmill.vector_stores.memory import MEMORY_LIMITS

            return MEMORY_LIMITS
        case DiscardStoreSettings():
            from embedmill.vector_stores.discard import DISCARD_LIMITS

            return DISCARD_LIMITS
        case StorePluginSettings():
            return store_of(settings).limits(settings)
        case _:
            assert_never(settings)
