"""What the gates look at: a version with its layers, its store and, when asked for, its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from embedmill.applied_layer import AppliedLayer
from embedmill.closing import let_go
from embedmill.embedder import Embedder, Vectors
from embedmill.errors import EmbedmillError, StopRunError
from embedmill.manifest import IndexVersion
from embedmill.segment import ChunkLayer
from embedmill.settings import Settings
from embedmill.vector_layer import VectorLayer
from embedmill.vector_store import Hit, VectorStore
from embedmill.version_embedder import embedder_for
from embedmill.workspace import Workspace

# Texts embedded at once.
_AT_ONCE = 64


@dataclass(slots=True)
class Subject:
    """A version that is looked at.

    Attributes:
        settings: of the index.
        workspace: of the index.
        version: that is looked at.
        store: open; holds its collection.
    """

    settings: Settings
    workspace: Workspace
    version: IndexVersion
    store: VectorStore
    _embedder: Embedder | None = field(default=None)

    @staticmethod
    def layers_of(
        settings: Settings, workspace: Workspace, version: IndexVersion
    ) -> tuple[ChunkLayer, VectorLayer, AppliedLayer]:
        """The layers of a version, in the order in which a segment passes through them."""
        return (
            ChunkLayer(workspace, settings.index, version.chunking.id),
            VectorLayer.of_version(workspace, settings.index, version),
            AppliedLayer(workspace, settings.index, version.collection),
        )

    @property
    def chunks(self) -> ChunkLayer:
        """Its chunk layer."""
        return self.layers_of(self.settings, self.workspace, self.version)[0]

    @property
    def vectors(self) -> VectorLayer:
        """Its vectors layer."""
        return self.layers_of(self.settings, self.workspace, self.version)[1]

    @property
    def applied(self) -> AppliedLayer:
        """Its applied layer."""
        return self.layers_of(self.settings, self.workspace, self.version)[2]

    @property
    def embedder(self) -> Embedder:
        """Its model, loaded when it is first asked for."""
        if self._embedder is None:
            self._embedder = embedder_for(self.settings, self.workspace, self.version)
        return self._embedder

    def queries(self, texts: Sequence[str]) -> list[Vectors | None]:
        """Vectors of queries; None for a text that cannot be embedded."""
        found: list[Vectors | None] = []
        for start in range(0, len(texts), _AT_ONCE):
            embedded = self.embedder.embed(texts[start : start + _AT_ONCE], "query")
            found += [
                None if row in embedded.failures else vector
                for row, vector in enumerate(embedded.vectors)
            ]
        return found

    def search(self, vector: Vectors, k: int) -> Sequence[Hit]:
        """The nearest chunks in its collection."""
        return self.store.search(self.version.collection, vector, k)

    def close(self) -> None:
        """Close the model's connections, where it has any; the store is the caller's."""
        let_go(self._embedder)


def why_no_queries(subject: Subject) -> str:
    """Why a version's model cannot embed queries here; "" when it can."""
    try:
        subject.embedder  # noqa: B018 - loads it
    except StopRunError:
        raise
    except EmbedmillError as error:
        return f"the model of {subject.version.name} cannot be loaded: {error}"
    return ""
