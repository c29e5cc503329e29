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

from embedmill.errors import RefusedError
from embedmill.live_records import LiveRecords
from embedmill.manifest import IndexVersion
from embedmill.parquet_files import digest_of, to_parquet
from embedmill.segment import ChunkLayer
from embedmill.vector_store import VectorBatch
from embedmill.workspace import Workspace, create_once

# Tools that read a folder of Parquet files leave out what begins with an underscore or a dot.
MANIFEST = "_export.json"
FORMAT = "1"
# A file of 64 MiB is quick to copy, and what is held in memory while it is made.
_FILE_BYTES = 64 * 2**20
# What follows the index in the name of a file.
_STATE_AND_PLACE = r"-v\d+-[0-9a-f]{8}-s\d{4,}-\d{5}\.parquet"


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


def a_file_of(index: str, version: IndexVersion) -> str:
    """A name as the files of an export have them."""
    return _name(index, version, "0" * 8, 0, 0)


def _name(index: str, version: IndexVersion, state: str, shard: int, number: int) -> str:
    return f"{index}-{version.name}-{state}-s{shard:04d}-{number:05d}.parquet"


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
        """Write what is missing, then the manifest; return the manifest.

        Raises:
            RefusedError: the folder has the export of another index.
        """
        there = self._manifest_there()
        if there.get("index", self._index) != self._index:
            raise RefusedError(
                f"the export of index {there['index']!r} is there already",
                hint="name another folder: one folder holds one index, since others read all of it",
            )
        if self._is_whole(there):
            return there
        # Of another state, or of files that are no longer what it says.
        self._to.delete([MANIFEST])
        files = [file for shard in self._live.shards() for file in self._shard(shard)]
        manifest = self._manifest(files)
        self._to.create(MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        self._remove_others({file.name for file in files})
        return manifest

    def _manifest_there(self) -> dict[str, Any]:
        """Empty without one."""
        data = self._to.read(MANIFEST)
        try:
            found = None if data is None else orjson.loads(data)
        except orjson.JSONDecodeError:
            # Torn by whoever copied it here; it is written anew.
            found = None
        return found if isinstance(found, dict) else {}

    def _is_whole(self, manifest: Mapping[str, Any]) -> bool:
        """Whether it is of this state and all of its files are there."""
        if manifest.get("state") != self._state:
            return False
        there = {entry.path: entry.size for entry in self._to.list("")}
        return all(there.get(file["name"]) == file["bytes"] for file in manifest["files"])

    def _shard(self, shard: int) -> Iterator[ExportedFile]:
        for number, batch in enumerate(self._batches(shard)):
            yield self._file(_name(self._index, self._version, self._state, shard, number), batch)

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
        """Delete files of this index's earlier states; those of others, or in folders, stay."""
        ours = re.compile(re.escape(self._index) + _STATE_AND_PLACE)
        paths = [entry.path for entry in self._to.list("")]
        self._to.delete([path for path in paths if ours.fullmatch(path) and path not in names])
