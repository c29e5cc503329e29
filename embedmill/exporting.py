"""A version as Parquet files that need no embedmill to be read.

::

    <to>/_export.json                              what it is and which files belong to it; put last
    <to>/<index>-v3-1f0c9a2b-s0007-00002.parquet   records of shard 7

The name of a file carries an id of what is exported, so that files of another state are never taken
for ours. The manifest is there only while all of its files are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from embedmill.live_records import LiveRecords
from embedmill.manifest import IndexVersion
from embedmill.parquet_files import digest_of, from_parquet, to_parquet
from embedmill.segment import ChunkLayer
from embedmill.vector_store import VectorBatch
from embedmill.workspace import Workspace, create_once

# Tools that read a folder of Parquet files leave out what begins with an underscore or a dot.
MANIFEST = "_export.json"
FORMAT = "1"
# A file of 64 MiB is quick to copy, and what is held in memory while it is made.
_FILE_BYTES = 64 * 2**20
_OURS = re.compile(r"(?:^|/)[\w.-]+-v\d+-[0-9a-f]{8}-s\d{4,}-\d{5}\.parquet$")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of an export.

    Attributes:
        name: in the folder.
        records: rows.
        bytes: of the file.
        digest: blake2b-128 of the file, in hexadecimal digits.
    """

    name: str
    records: int
    bytes: int
    digest: str


def schema(dimension: int) -> pa.Schema:
    """Columns of an export's files."""
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("chunk_index", pa.int32(), nullable=False),
            pa.field("text", pa.large_string(), nullable=False),
            pa.field("start", pa.int64(), nullable=False),
            pa.field("end", pa.int64(), nullable=False),
            pa.field("headings", pa.list_(pa.string()), nullable=False),
            pa.field("uri", pa.string(), nullable=False),
            # As JSON: every document may have other keys.
            pa.field("metadata", pa.string(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False),
        ]
    )


def state_id(version: IndexVersion, chunks: ChunkLayer) -> str:
    """8 hexadecimal digits over everything that decides what is exported."""
    state = {"collection": version.collection, "segments": sorted(chunks.committed().items())}
    return blake2b(orjson.dumps(state), digest_size=4).hexdigest()


class Exporter:
    """Exports one state of a version; killed at any point, it keeps the files that are there."""

    def __init__(
        self, to: Workspace, live: LiveRecords, index: str, version: IndexVersion, state: str
    ) -> None:
        self._to = to
        self._live = live
        self._index = index
        self._version = version
        self._state = state

    def run(self) -> dict[str, Any]:
        """Write what is missing, then the manifest; return the manifest."""
        complete = self._complete()
        if complete is not None:
            return complete
        # Of another state, or of files that are no longer what it says.
        self._to.delete([MANIFEST])
        files = [file for shard in self._live.shards() for file in self._shard(shard)]
        manifest = self._manifest(files)
        self._to.create(MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        self._remove_others({file.name for file in files})
        return manifest

    def _complete(self) -> dict[str, Any] | None:
        """The manifest, when it is there and of this state and all of its files are there."""
        data = self._to.read(MANIFEST)
        manifest: dict[str, Any] = {} if data is None else orjson.loads(data)
        if manifest.get("state") != self._state or manifest.get("index") != self._index:
            return None
        there = {entry.path: entry.size for entry in self._to.list("")}
        whole = all(there.get(file["name"]) == file["bytes"] for file in manifest["files"])
        return manifest if whole else None

    def _shard(self, shard: int) -> Iterator[ExportedFile]:
        for number, batch in enumerate(self._batches(shard)):
            name = f"{self._index}-{self._version.name}-{self._state}-s{shard:04d}-{number:05d}"
            yield self._file(f"{name}.parquet", batch)

    def _batches(self, shard: int) -> Iterator[list[VectorBatch]]:
        """Records of a shard, as many as go into one file; the same ones every time."""
        some: list[VectorBatch] = []
        size = 0
        for segment in self._live.segments(shard):
            batch = self._live.records(segment)
            some.append(batch)
            size += batch.vectors.nbytes + sum(len(p["text"]) for p in batch.payloads)
            if size >= _FILE_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _file(self, name: str, batches: list[VectorBatch]) -> ExportedFile:
        data = to_parquet(self._table(batches), compression="zstd")
        if not create_once(self._to, name, data):
            # Somebody has written into it: ours are equal for equal records.
            self._to.delete([name])
            self._to.create(name, data)
        records = sum(len(batch.ids) for batch in batches)
        return ExportedFile(name, records, len(data), digest_of(data))

    def _table(self, batches: list[VectorBatch]) -> pa.Table:
        rows = [payload for batch in batches for payload in batch.payloads]
        dimension = self._version.embedding.dimension
        vectors = np.concatenate([batch.vectors for batch in batches]).ravel()
        columns: Mapping[str, Any] = {
            "id": [str(record) for batch in batches for record in batch.ids],
            **{
                name: [row[name] for row in rows]
                for name in ("doc_id", "chunk_index", "text", "start", "end", "headings", "uri")
            },
            "metadata": [orjson.dumps(row["metadata"]).decode() for row in rows],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), dimension),
        }
        return pa.table(columns, schema=schema(dimension))

    def _manifest(self, files: list[ExportedFile]) -> dict[str, Any]:
        embedding, chunking = self._version.embedding, self._version.chunking
        return {
            "format": FORMAT,
            "index": self._index,
            "version": self._version.name,
            "state": self._state,
            "records": sum(file.records for file in files),
            "dimension": embedding.dimension,
            "metric": embedding.metric,
            "model": embedding.model,
            "revision": embedding.revision,
            "normalised": embedding.normalise,
            "query_prompt": embedding.query_prompt,
            "embedding": embedding.id,
            "chunking": chunking.id,
            "files": [
                {"name": f.name, "records": f.records, "bytes": f.bytes, "blake2b": f.digest}
                for f in files
            ],
        }

    def _remove_others(self, names: set[str]) -> None:
        """Delete files of earlier states of any version; what is not ours stays."""
        paths = [entry.path for entry in self._to.list("")]
        self._to.delete([path for path in paths if _OURS.search(path) and path not in names])


def read_export(folder: Workspace, name: str) -> pa.Table:
    """One file of an export, checked."""
    data = folder.read(name)
    assert data is not None
    return from_parquet(data, name)
