"""Rows that nobody wants any more while they wait for a job or are in one.

A document that has changed again, or is gone, stands in a later segment of its shard. Its rows in
the earlier segment are stale: no reader will see them. A text of theirs is wanted all the same
where a row that is not stale has it too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from embedmill.job_rows import SegmentRows
from embedmill.segment import ChunkLayer, SegmentKey, digests_in
from embedmill.vector_layer import VectorLayer

_Mask = npt.NDArray[np.bool_]


class Restated:
    """Which documents of segments without vectors stand again in a later segment.

    Holds the keys of these documents; each file of document rows is read once.
    """

    def __init__(self, chunks: ChunkLayer, vectors: VectorLayer) -> None:
        self._chunks = chunks
        self._vectors = vectors
        self._read: dict[int, set[int]] = defaultdict(set)
        self._keys: dict[SegmentKey, set[bytes]] = defaultdict(set)

    def look(self, shard: int) -> None:
        """Read the document rows of a shard's segments that were not read yet."""
        new = set(self._chunks.committed_of(shard)) - self._read[shard]
        if not new:
            return
        finished = set(self._vectors.committed_of(shard))
        for number in sorted(new):
            docs = self._chunks.docs(SegmentKey(shard, number), ("doc_key", "previous_segment"))
            before = docs.column("previous_segment").to_numpy()
            keys = docs.column("doc_key")
            for row in np.flatnonzero(before >= 0):
                if int(before[row]) not in finished:
                    self._keys[SegmentKey(shard, int(before[row]))].add(keys[int(row)].as_py())
        self._read[shard] |= new

    def rows(self, key: SegmentKey, count: int) -> _Mask:
        """Which chunk rows of a segment are stale.

        Args:
            key: of the segment.
            count: its chunk rows.
        """
        stale = np.zeros(count, np.bool_)
        restated = self._keys.get(key)
        if restated:
            docs = self._chunks.docs(key, ("doc_key", "first_chunk", "chunk_count"))
            for doc in docs.to_pylist():
                if doc["doc_key"] in restated:
                    stale[doc["first_chunk"] : doc["first_chunk"] + doc["chunk_count"]] = True
        return stale

    def forget(self, key: SegmentKey) -> None:
        """The segment has vectors."""
        self._keys.pop(key, None)


def unwanted(
    waiting: Mapping[SegmentKey, SegmentRows], restated: Restated, chunks: ChunkLayer
) -> dict[SegmentKey, npt.NDArray[np.int64]]:
    """Stale rows of segments that wait, whose text no other row of these segments wants.

    Args:
        waiting: segments without vectors.
        restated: says which of their rows are stale.
        chunks: hold the texts.
    """
    masks = {key: restated.rows(key, len(rows.state)) for key, rows in waiting.items()}
    if not any(mask.any() for mask in masks.values()):
        return {}
    hashes = {key: _hashes(chunks, key) for key in waiting}
    wanted = np.unique(np.concatenate([hashes[key][~masks[key]] for key in waiting]))
    found = {}
    for key, mask in masks.items():
        rows = np.flatnonzero(mask)
        rows = rows[~np.isin(hashes[key][rows], wanted)]
        if len(rows):
            found[key] = rows
    return found


def _hashes(chunks: ChunkLayer, key: SegmentKey) -> npt.NDArray[np.uint64]:
    """Half of each hash: should two texts share it, the stale one is taken for wanted."""
    data = b"".join(digests_in(chunks.chunks(key, ("text_hash",))[0].column("text_hash")))
    return np.frombuffer(data, ">u8").reshape(-1, 2)[:, 0].astype(np.uint64)
