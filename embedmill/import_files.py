"""The files of a bulk import, and what is recorded once a store has read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

import orjson

from embedmill.bulk_import import BulkImporter
from embedmill.ledger import Ledger
from embedmill.live_records import LiveRecords
from embedmill.segment import ChunkLayer
from embedmill.vector_store import Rejection, VectorBatch
from embedmill.workspace import Workspace, create_once

# What is held in memory while a file is made; a service takes 10 GB.
FILE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ImportFile:
    """One file of an import.

    Attributes:
        path: in the bucket's workspace; empty where no record was left to be put in one.
        records: in it.
        following: segment that the next file of the shard begins with; -1: there is none.
    """

    path: str
    records: int
    following: int


def folder_of(index: str, collection: str, store: str, committed: Mapping[int, list[int]]) -> str:
    """Folder of the files: of one state of one collection, for one store."""
    state = blake2b(orjson.dumps(sorted(committed.items())), digest_size=4).hexdigest()
    return f"{index}-{collection}-{store}-{state}"


def live_count(chunks: ChunkLayer) -> int:
    """Chunks of all documents, those without a vector too."""
    return sum(Ledger.fold(chunks, shard)[0].chunk_total() for shard in chunks.committed())


class ImportFiles:
    """Writes the files of one import, one at a time; killed at any point, it writes them again."""

    def __init__(self, bucket: Workspace, folder: str, collection: str, live: LiveRecords) -> None:
        """Hold what is needed.

        Args:
            bucket: that the store reads from.
            folder: of this import.
            collection: names the folder within, as services want it.
            live: the records, no store having been asked.
        """
        self._bucket = bucket
        self._folder = folder
        self._collection = collection
        self._live = live

    def write(self, importer: BulkImporter, shard: int, first: int) -> ImportFile:
        """Write the file that begins with segment ``first``; whole segments, in order."""
        batches: list[VectorBatch] = []
        size, following = 0, -1
        for segment in self._live.segments(shard):
            if segment.key.number < first:
                continue
            if size >= FILE_BYTES:
                following = segment.key.number
                break
            batches.append(self._live.records(segment))
            size += batches[-1].vectors.nbytes
        data, records = importer.file_of(batches) if batches else (b"", 0)
        if not records:
            return ImportFile("", 0, following)
        path = f"{self._folder}/{self._collection}/s{shard:04d}-{max(first, 0):08d}.parquet"
        if not create_once(self._bucket, path, data):
            # Of a run that was made of something else; nobody imports it before the plan.
            self._bucket.delete([path])
            self._bucket.create(path, data)
        return ImportFile(path, records, following)


class ImportedRecords:
    """Stands for a store that has all records already: says which it could not have taken."""

    def __init__(self, rejections: Callable[[VectorBatch], Sequence[Rejection]]) -> None:
        self._rejections = rejections

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:  # noqa: ARG002 (of the protocol)
        """The rows that were left out of the import."""
        return self._rejections(batch)

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Nothing: what is stale was never imported."""
