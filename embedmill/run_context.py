"""What every worker of a run needs to know, as one value that travels."""

from __future__ import annotations

import getpass
import os
import socket
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
        copy_of: id of another store that the version is copied to; empty for the index's own.
        by_jobs: a provider's jobs bring vectors: the settings ask for them, or earlier runs have
            left some open.
    """

    settings: Settings
    run: str
    version: str
    collection: str
    chunking: ChunkingRecipe
    embedding: EmbeddingRecipe
    copy_of: str = ""
    by_jobs: bool = False

    @property
    def applied(self) -> str:
        """Name of the applied layer; that of a copy is its own."""
        return f"{self.collection}@{self.copy_of}" if self.copy_of else self.collection


def utc_now() -> str:
    """UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def who() -> str:
    """User and host, for people who want to know later who did something."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container whose user has no name.
        user = f"uid {os.getuid()}"
    return f"{user} on {socket.gethostname()}"
