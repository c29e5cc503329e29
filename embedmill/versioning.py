"""Which index version a run works on, and whether its recipe is the one that was asked for."""

from __future__ import annotations

from dataclasses import replace

from embedmill.errors import RecipeMismatchError, RefusedError
from embedmill.manifest import IndexVersion, ManifestState
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe, differences
from embedmill.settings import SentenceTransformersSettings, Settings


def version_for_ingest(
    settings: Settings,
    state: ManifestState,
    wanted: tuple[ChunkingRecipe, EmbeddingRecipe],
    *,
    now: str,
) -> IndexVersion:
    """The version that an ingest continues, or the first one, not yet committed.

    Args:
        settings: of the index.
        state: of its manifest.
        wanted: what the settings ask for.
        now: UTC, ISO 8601.

    Raises:
        RecipeMismatchError: the index has another recipe; the message says each difference.
        RefusedError: the shard count is another.
    """
    current = state.published or state.newest
    chunking, embedding = wanted
    if current is None:
        return IndexVersion(
            number=1,
            state="building",
            chunking=chunking,
            embedding=embedding,
            collection=f"{settings.index}--v1",
            shard_count=settings.shard_count,
            created=now,
        )
    if current.shard_count != settings.shard_count:
        raise RefusedError(
            f"index {settings.index!r} has {current.shard_count} shards for its whole life, the "
            f"settings say {settings.shard_count}",
            code="shard-count",
            hint=f"set shard_count: {current.shard_count}",
        )
    changes = differences(current.chunking, chunking)
    changes += differences(current.embedding, adopted(settings, current.embedding, embedding))
    if changes:
        listed = "\n".join(f"  {change}" for change in changes)
        raise RecipeMismatchError(
            f"the settings ask for another recipe than {current.name} of index "
            f"{settings.index!r} has; nothing was changed:\n{listed}",
            hint="set the settings back, or build the new recipe under another index name and "
            "point readers there",
        )
    return current


def adopted(
    settings: Settings, existing: EmbeddingRecipe, wanted: EmbeddingRecipe
) -> EmbeddingRecipe:
    """What is wanted, with the existing dtype where the settings leave it open.

    An index that was built in bfloat16 stays so on a machine that would have chosen float32.
    """
    embedder = settings.embedder
    if isinstance(embedder, SentenceTransformersSettings) and embedder.dtype == "auto":
        return replace(wanted, dtype=existing.dtype)
    return wanted
