"""What every worker of a run needs to know, as one value that travels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.settings import Settings


@dataclass(frozen=True, slots=True)
class RunContext:
    """One execution of a pipeline on one index version.

    Attributes:
        settings: of the index.
        run: id of the run.
        version: name of the index version (``v1``).
        collection: where the version's records live.
        chunking: the version's chunking recipe.
        embedding: the version's embedding recipe.
    """

    settings: Settings
    run: str
    version: str
    collection: str
    chunking: ChunkingRecipe
    embedding: EmbeddingRecipe


def utc_now() -> str:
    """UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()
