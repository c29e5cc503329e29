"""Segments: immutable, numbered batches of work of one shard; here their first layer, the chunks.

The document rows of a segment are committed last and name the chunk file they belong to by its
digest, so that a segment either exists whole or not at all. The layers after it are
``vector_layer`` and ``applied_layer``.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from embedmill.errors import DamagedFileError, ShardOwnedElsewhereError
from embedmill.made_by import exceptions_in, run_of
from embedmill.numbered_files import delete_below, numbers_in
from embedmill.parquet_files import from_parquet, name_of, note_of, schema_of, to_parquet
from embedmill.workspace import Workspace, create_once, require

# The most chunks of one segment, so that one segment fits one provider file.
MAX_SEGMENT_CHUNKS = 50_000
FORMAT = "1"
_SNAPSHOT = r"\.snapshot"
_Columns: TypeAlias = Sequence[str] | None
# Of document and chunk rows. With zstd 300 chunks of prose are a quarter less than with LZ4, of
# files that vectors are several times as large as; it takes twice the time to write and to read.
_COMPRESSION = "lz4"

DOCS_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.large_string(), nullable=False),
        pa.field("doc_key", pa.binary(16), nullable=False),
        # True: this document is gone; it has no chunks.
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("fingerprint", pa.binary(16), nullable=False),
        pa.field("first_chunk", pa.int32(), nullable=False),
        pa.field("chunk_count", pa.int32(), nullable=False),
        # Where the document stood before, -1 when it is new; its stale record ids follow from
        # the chunk count.
        pa.field("previous_segment", pa.int32(), nullable=False),
        pa.field("previous_chunk_count", pa.int32(), nullable=False),
        pa.field("uri", pa.large_string(), nullable=False),
        pa.field("metadata", pa.large_string(), nullable=False),
        # The run that cut it, where that is another one than the file's.
        pa.field("made_by", pa.string()),
    ]
)

CHUNKS_SCHEMA = pa.schema(
    [
        pa.field("doc_row", pa.int32(), nullable=False),
        pa.field("chunk_index", pa.int32(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("token_count", pa.int32(), nullable=False),
        pa.field("headings", pa.list_(pa.string()), nullable=False),
        pa.field("truncated", pa.bool_(), nullable=False),
        pa.field("text_hash", pa.binary(16), nullable=False),
        # A chunk of the same shard with the same text, whose vector may be taken; -1: none.
        pa.field("same_as_segment", pa.int32(), nullable=False),
        pa.field("same_as_row", pa.int32(), nullable=False),
    ]
)


def digests_in(column: pa.ChunkedArray) -> list[bytes]:
    """Keys, fingerprints or hashes, 16 bytes each; ``to_pylist`` takes thirty times as long."""
    digests: list[bytes] = column.to_numpy().tolist()
    return digests


@dataclass(frozen=True, slots=True, order=True)
class SegmentKey:
    """Names a segment within an index: shard and number. Keys travel, data does not."""

    shard: int
    number: int

    def __str__(self) -> str:
        return f"s{self.shard:04d}/{self.number:08d}"


class ChunkLayer:
    """Chunk and document rows of the segments of one chunking recipe."""

    def __init__(self, workspace: Workspace, index: str, chunking_id: str, run: str = "") -> None:
        self._workspace = workspace
        self._folder = f"indexes/{index}/chunks/{chunking_id}"
        self._vectors = f"indexes/{index}/vectors/{chunking_id}"
        self._run = run

    def complete(self) -> dict[int, list[int]]:
        """See :meth:`committed`; for whoever takes these segments for all that there are.

        One that is missing behind all others leaves no gap. What was made of it, under whichever
        embedding recipe, tells.

        Raises:
            DamagedFileError: the vectors of one that is missing are there.
        """
        found = self.committed()
        paths = [entry.path for entry in self._workspace.list(self._vectors)]
        for shard, numbers in numbers_in(paths, r"\.parquet").items():
            last = numbers[-1]
            # Others may have committed it, or folded it away, since.
            if last > _last(found.get(shard)) and last > _last(self.committed_of(shard)):
                require(self._workspace, self._docs_path(SegmentKey(shard, last)))
        return found

    def committed(self) -> dict[int, list[int]]:
        """Numbers of the committed segments of every shard, ascending.

        Segments that a snapshot replaced are left out, whether their files are gone already or not.

        Raises:
            DamagedFileError: one is missing among the others: its documents would seem unknown.
        """
        return self._committed(self._folder)

    def committed_of(self, shard: int) -> list[int]:
        """Numbers of the committed segments of one shard, ascending; see :meth:`committed`."""
        return self._committed(f"{self._folder}/s{shard:04d}").get(shard, [])

    def _committed(self, folder: str) -> dict[int, list[int]]:
        found, missing = self._listed(folder)
        if missing:
            # A listing is not of one moment: others commit, and delete what a snapshot replaced.
            found, missing = self._listed(folder)
        for key in missing:
            # One that is there after all was committed while they were listed, as later ones were.
            require(self._workspace, self._docs_path(key))
            insort(found[key.shard], key.number)
        return found

    def _listed(self, folder: str) -> tuple[dict[int, list[int]], list[SegmentKey]]:
        """Numbers by shard, and the segments that lack their file although later ones are there."""
        paths = [entry.path for entry in self._workspace.list(folder)]
        starts = {s: numbers[-1] for s, numbers in numbers_in(paths, _SNAPSHOT).items()}
        found, missing = {}, []
        for shard, listed in numbers_in(paths, r"\.docs\.parquet").items():
            start = starts.get(shard, 0)
            numbers = found[shard] = [number for number in listed if number >= start]
            if numbers and len(numbers) <= numbers[-1] - start:
                gaps = sorted(set(range(start, numbers[-1])) - set(numbers))
                missing += [SegmentKey(shard, number) for number in gaps]
        return found, missing

    def mark_snapshot(self, key: SegmentKey) -> None:
        """From now on the segments of this shard begin with ``key``; earlier ones are replaced."""
        create_once(self._workspace, f"{self._folder}/{key}.snapshot", b"1")

    def start_of(self, shard: int) -> int:
        """Number that the shard begins with; 0 when it has no snapshot."""
        paths = [entry.path for entry in self._workspace.list(f"{self._folder}/s{shard:04d}")]
        return numbers_in(paths, _SNAPSHOT).get(shard, [0])[-1]

    def delete_below(self, shard: int, number: int) -> None:
        """Delete the files of segments that a snapshot replaced."""
        paths = [entry.path for entry in self._workspace.list(f"{self._folder}/s{shard:04d}")]
        delete_below(self._workspace, paths, number)

    def commit(
        self, key: SegmentKey, docs: pa.Table, chunks: pa.Table, *, copy: bool = False
    ) -> None:
        """Write the chunk file, then the document file; the second makes the segment exist.

        The chunk file carries its digest in its name: whatever a killed or a second writer left
        under the same number is not ours and is never read.

        Args:
            key: the segment.
            docs: its document rows.
            chunks: its chunk rows.
            copy: it says again what earlier segments say (see :meth:`is_copy`).

        Raises:
            ShardOwnedElsewhereError: another writer has committed this number.
        """
        data = to_parquet(chunks.cast(CHUNKS_SCHEMA), compression=_COMPRESSION)
        digest = name_of(data)
        name = f"{self._folder}/{key}.{digest[:12]}.chunks.parquet"
        if not create_once(self._workspace, name, data):
            raise DamagedFileError(
                f"{name} does not hold what its name says", hint=f"delete {name} and run again"
            )
        notes = {"format": FORMAT, "chunks_file": name, "chunks_digest": digest, "run": self._run}
        if copy:
            notes["copy"] = "1"
        marked = docs.cast(DOCS_SCHEMA).replace_schema_metadata(notes)
        data = to_parquet(marked, compression=_COMPRESSION)
        if not create_once(self._workspace, self._docs_path(key), data):
            raise ShardOwnedElsewhereError(
                f"another run has committed segment {key}: two runs write to this index",
                hint="let one of them end, then run the same command again",
            )

    def is_copy(self, key: SegmentKey) -> bool:
        """Whether every row is of a snapshot: a document as it stood, chunks where they stood."""
        path = self._docs_path(key)
        return b"copy" in (schema_of(require(self._workspace, path), path).metadata or {})

    def docs(self, key: SegmentKey, columns: _Columns = None) -> pa.Table:
        """Document rows of a committed segment."""
        path = self._docs_path(key)
        return from_parquet(require(self._workspace, path), path, columns)

    def digest(self, key: SegmentKey) -> str:
        """The digest of a segment's chunk rows, which are not read for it; vectors refer to it."""
        path = self._docs_path(key)
        return note_of(schema_of(require(self._workspace, path), path), path, "chunks_digest")

    def chunks(self, key: SegmentKey, columns: _Columns = None) -> tuple[pa.Table, str]:
        """Chunk rows of a committed segment, and the digest that vectors refer to."""
        path = self._docs_path(key)
        return self._chunks_of(schema_of(require(self._workspace, path), path), path, columns)

    def rows(
        self, key: SegmentKey, chunk_columns: _Columns = None, doc_columns: _Columns = None
    ) -> tuple[pa.Table, pa.Table, str]:
        """Document rows and chunk rows of a committed segment, and the digest of the latter."""
        docs = self.docs(key, doc_columns)
        return docs, *self._chunks_of(docs.schema, self._docs_path(key), chunk_columns)

    def _chunks_of(
        self, docs: pa.Schema, path: str, columns: _Columns = None
    ) -> tuple[pa.Table, str]:
        name, digest = note_of(docs, path, "chunks_file"), note_of(docs, path, "chunks_digest")
        data = require(self._workspace, name)
        if name_of(data) != digest:
            raise DamagedFileError(
                f"{name} is not the file that was committed",
                hint="restore it from a copy of the workspace",
            )
        return from_parquet(data, name, columns), digest

    def _docs_path(self, key: SegmentKey) -> str:
        return f"{self._folder}/{key}.docs.parquet"


def runs_of(docs: pa.Table) -> list[str]:
    """The runs that cut the documents of a segment, row by row; "" where none is noted.

    Args:
        docs: all columns of its document rows.
    """
    other, run = exceptions_in(docs, "made_by"), run_of(docs.schema)
    return [other.get(row, run) for row in range(docs.num_rows)]


def _last(numbers: Sequence[int] | None) -> int:
    return numbers[-1] if numbers else -1
