"""What a version lacks: segments that one layer has and the next has not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from embedmill.applied_layer import AppliedLayer
from embedmill.manifest import IndexVersion
from embedmill.plain_numbers import number_of
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.vector_layer import VectorLayer
from embedmill.workspace import Workspace

log = logging.getLogger(__name__)


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
    """Compare the layers of a version.

    Raises:
        DamagedFileError: the documents of a segment are gone.
    """
    chunks = ChunkLayer(workspace, index, version.chunking.id).complete()
    vectors = VectorLayer.of_version(workspace, index, version).committed()
    applied = AppliedLayer(workspace, index, version.collection).committed()

    to_embed = to_store = 0
    for shard, numbers in chunks.items():
        to_embed += len(set(numbers).difference(vectors.get(shard, ())))
        lacking = set(numbers).difference(applied.get(shard, ()))
        # The store is given the ones after it again: see below.
        to_store += len([number for number in numbers if lacking and number >= min(lacking)])
    return WorkLeft(to_embed, to_store)


def confirmed_in_line(chunks: ChunkLayer, applied: AppliedLayer, *, mend: bool) -> dict[int, int]:
    """The number of each shard up to which the store has confirmed every segment.

    A record that is missing while later ones are there was damaged and deleted by hand. What its
    segment wrote, later ones may have changed: all from it on are given to the store again.

    Args:
        chunks: of the version.
        applied: of its collection.
        mend: forget the records that are beyond a missing one.

    Raises:
        DamagedFileError: the store has a segment whose documents are gone.
    """
    confirmed = {}
    recorded = applied.committed()
    committed = chunks.committed()
    for shard, numbers in recorded.items():
        if numbers[-1] > max(committed.get(shard, ()), default=-1):
            chunks.docs(SegmentKey(shard, numbers[-1]))
        lacking = min(set(committed.get(shard, ())) - set(numbers), default=numbers[-1] + 1)
        in_line = [number for number in numbers if number < lacking]
        if in_line:
            confirmed[shard] = in_line[-1]
        beyond = [number for number in numbers if number > lacking]
        if beyond and mend:
            log.warning(
                "shard %d: that segment %d is stored is recorded no more; it and %s after it are "
                "given to the store again",
                shard,
                lacking,
                number_of(len(beyond), "segment"),
            )
            # The earliest last: what is missing stays in sight until all is forgotten.
            applied.delete(SegmentKey(shard, number) for number in reversed(beyond))
    return confirmed


def lacking_vectors(chunks: ChunkLayer, vectors: VectorLayer) -> Callable[[SegmentKey], bool]:
    """Tells of many segments whether one is there and has none; each shard is listed once."""

    @cache
    def lacking(shard: int) -> frozenset[int]:
        # A compaction beside us deletes files: what is there is looked at last.
        finished = vectors.committed_of(shard)
        return frozenset(chunks.committed_of(shard)).difference(finished)

    return lambda key: key.number in lacking(key.shard)


def lacks_vectors(chunks: ChunkLayer, vectors: VectorLayer, key: SegmentKey) -> bool:
    """Whether a segment has none, looked at once more: a compaction beside us deletes files."""
    return not vectors.exists(key) and key.number in chunks.committed_of(key.shard)
