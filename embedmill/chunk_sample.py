"""A sample of the chunks of a version, with what its layers say of them; memory stays bounded.

Segments are drawn with the weight of their live chunks, then rows within them, by dice that fall
the same way for the same files. Of 32 drawn segments each is read once, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from uuid import UUID

import numpy as np

from embedmill.applied_layer import AppliedLayer
from embedmill.embedder import Vectors
from embedmill.ledger import Ledger
from embedmill.payload import Payload
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.segment_records import SegmentRecords
from embedmill.vector_layer import VectorLayer
from embedmill.vector_store import VectorBatch

_SEGMENTS = 32
# Rows of one segment whose vectors are compared with each other, and with those of other segments.
_COMPARED = 2_000


@dataclass(frozen=True, slots=True)
class ChunkSample:
    """Chunks of a version as its store should hold them.

    Attributes:
        records: id, vector and payload of each sampled chunk.
        health: of all rows of the segments that were read.
    """

    records: VectorBatch
    health: VectorHealth

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self.records.ids)

    @property
    def ids(self) -> Sequence[UUID]:
        """Record ids."""
        return self.records.ids

    @property
    def vectors(self) -> Vectors:
        """Of the vectors layer, shape (n, dimension)."""
        return self.records.vectors

    @property
    def payloads(self) -> Sequence[Payload]:
        """What the store should hold beside the vectors."""
        return self.records.payloads

    @property
    def texts(self) -> list[str]:
        """Texts of the chunks."""
        return [payload["text"] for payload in self.records.payloads]

    def take(self, rows: Sequence[int]) -> ChunkSample:
        """Some of the chunks, in the given order."""
        return ChunkSample(self.records.take(rows), self.health)


@dataclass(slots=True)
class VectorHealth:
    """What the vectors of many chunks have in common.

    Attributes:
        rows: that were looked at.
        broken: rows that hold NaN or infinity, or are zero.
        least_norm: of the others.
        largest_norm: of the others.
        compared: rows whose vectors were compared with each other.
        shared: of these, rows with the very vector of a row of another text.
    """

    rows: int = 0
    broken: int = 0
    least_norm: float = math.inf
    largest_norm: float = 0.0
    compared: int = 0
    shared: int = 0
    _texts: dict[bytes, bytes] = field(default_factory=dict)

    def take(self, vectors: Vectors, texts: Sequence[str], cut: Sequence[bool]) -> None:
        """Look at rows.

        Args:
            vectors: shape (n, dimension).
            texts: of the rows.
            cut: rows of which the model saw the beginning only; they may well have equal vectors.
        """
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        good = np.isfinite(norms) & (norms > 0)
        self.rows += len(norms)
        self.broken += int((~good).sum())
        if good.any():
            self.least_norm = min(self.least_norm, float(norms[good].min()))
            self.largest_norm = max(self.largest_norm, float(norms[good].max()))
        for row in np.flatnonzero(good)[:_COMPARED]:
            if not cut[row]:
                self._compare(vectors[row], texts[row])

    def _compare(self, vector: Vectors, text: str) -> None:
        self.compared += 1
        # Case and white space may well be nothing to a model.
        said = _digest(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass"))
        self.shared += self._texts.setdefault(_digest(vector.tobytes()), said) != said


def sampled_chunks(
    chunks: ChunkLayer, vectors: VectorLayer, applied: AppliedLayer, size: int
) -> ChunkSample:
    """Draw chunks that have a record, at most ``size``.

    Args:
        chunks: of the version.
        vectors: of the version; segments without vectors are passed over.
        applied: of the version; segments that are not applied are passed over.
        size: how many.
    """
    live = _live_segments(chunks, applied)
    drawn = sorted(_drawn(live, max(_SEGMENTS, size // 16)))
    quotas = _quotas([live[key] for key in drawn], size)
    health = VectorHealth()
    parts: list[VectorBatch] = []
    for (key, documents), quota in zip(_with_documents(chunks, drawn), quotas, strict=True):
        parts.append(_sampled(key, documents, quota, (chunks, vectors, applied), health))
    return ChunkSample(_joined(parts, vectors.dimension), health)


def _live_segments(chunks: ChunkLayer, applied: AppliedLayer) -> dict[SegmentKey, int]:
    """Applied segments with live chunks, and how many these are."""
    done = {shard: set(numbers) for shard, numbers in applied.committed().items()}
    found = {}
    for shard in sorted(chunks.committed()):
        ledger, _ = Ledger.fold(chunks, shard)
        for number, count in ledger.live_segments().items():
            if count and number in done.get(shard, ()):
                found[SegmentKey(shard, number)] = count
    return found


def _drawn(live: Mapping[SegmentKey, int], most: int) -> list[SegmentKey]:
    """Draw by weight without putting back (Efraimidis and Spirakis 2006, algorithm A)."""

    def order(key: SegmentKey) -> float:
        return -math.log(_die(key)) / live[key]

    return sorted(live, key=order)[:most]


def _die(key: SegmentKey) -> float:
    """Above 0 and below 1, always the same for a segment."""
    return (int.from_bytes(_digest(str(key).encode())[:6], "big") + 1) / (2**48 + 1)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _quotas(counts: Sequence[int], size: int) -> list[int]:
    """Share out a number as evenly as what there is allows."""
    quotas = [0] * len(counts)
    left = size
    open_places = [at for at, count in enumerate(counts) if count]
    while left and open_places:
        each = max(1, left // len(open_places))
        for at in open_places[:left]:
            taken = min(each, counts[at] - quotas[at], left)
            quotas[at] += taken
            left -= taken
        open_places = [at for at in open_places if quotas[at] < counts[at]]
    return quotas


def _with_documents(
    chunks: ChunkLayer, keys: Sequence[SegmentKey]
) -> Iterator[tuple[SegmentKey, set[bytes]]]:
    """The keys, sorted by shard, with the live documents of each."""
    shard, ledger = -1, Ledger()
    for key in keys:
        if key.shard != shard:
            shard = key.shard
            ledger, _ = Ledger.fold(chunks, shard)
        yield key, ledger.documents_in(key.number)


def _sampled(
    key: SegmentKey,
    documents: set[bytes],
    quota: int,
    layers: tuple[ChunkLayer, VectorLayer, AppliedLayer],
    health: VectorHealth,
) -> VectorBatch:
    chunk_layer, vector_layer, applied_layer = layers
    docs = chunk_layer.docs(key)
    chunks, digest = chunk_layer.chunks(key)
    if not vector_layer.exists(key):
        return VectorBatch([], np.empty((0, vector_layer.dimension), np.float32), [])
    stored = vector_layer.read(key, digest)
    records = SegmentRecords(docs, chunks, stored)
    keys, gone = docs.column("doc_key").to_pylist(), docs.column("deleted").to_pylist()
    standing = {row for row, doc in enumerate(keys) if doc in documents and not gone[row]}
    refused = {row for row, _, _ in applied_layer.read(key).rejected}
    rows = [row for row in records.of_documents(standing) if row not in refused]
    texts: list[str] = chunks.column("text").to_pylist()
    cut: list[bool] = chunks.column("truncated").to_pylist()
    health.take(stored.vectors[rows], [texts[row] for row in rows], [cut[row] for row in rows])
    dice = np.random.default_rng([key.shard, key.number])
    chosen = dice.choice(len(rows), min(quota, len(rows)), replace=False) if rows else ()
    return records.batch([rows[at] for at in sorted(chosen)])


def _joined(parts: Sequence[VectorBatch], dimension: int) -> VectorBatch:
    empty = np.empty((0, dimension), np.float32)
    return VectorBatch(
        ids=[record for part in parts for record in part.ids],
        vectors=np.concatenate([empty, *(part.vectors for part in parts)]),
        payloads=[payload for part in parts for payload in part.payloads],
    )
