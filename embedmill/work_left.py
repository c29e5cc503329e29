"""What a version lacks: segments that one layer has and the next has not."""

from __future__ import annotations

from dataclasses import dataclass

from embedmill.applied_layer import AppliedLayer
from embedmill.manifest import IndexVersion
from embedmill.plain_numbers import number_of
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.vector_layer import VectorLayer
from embedmill.workspace import Workspace


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Segments that a version has not taken in.

    Attributes:
        embed: without vectors.
        store: that the store has not confirmed.
    """

    embed: int
    store: int

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.embed or self.store)

    def __str__(self) -> str:
        parts = [(self.embed, "to embed"), (self.store, "to store")]
        return ", ".join(f"{number_of(count, 'segment')} {what}" for count, what in parts if count)


def work_left(workspace: Workspace, index: str, version: IndexVersion) -> WorkLeft:
    """Compare the layers of a version."""
    chunks = ChunkLayer(workspace, index, version.chunking.id).committed()
    vectors = VectorLayer.of_version(workspace, index, version).committed()
    applied = AppliedLayer(workspace, index, version.collection).committed()

    def missing(layer: dict[int, list[int]]) -> int:
        return sum(len(set(numbers) - set(layer.get(s, []))) for s, numbers in chunks.items())

    return WorkLeft(missing(vectors), missing(applied))


def lacks_vectors(chunks: ChunkLayer, vectors: VectorLayer, key: SegmentKey) -> bool:
    """Whether a segment has none, looked at once more: a compaction beside us deletes files."""
    return not vectors.exists(key) and key.number in chunks.committed_of(key.shard)
