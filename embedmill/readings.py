"""What reading made of the objects of a bucket, so that those that stay need no reading again.

A reading says: under this tag this document has this content. It is true for ever, whatever became
of the run that noted it, and says nothing of what the index holds. An object is known when there is
a reading of its tag with just the content that the ledger has; so nothing rests on the order in
which segments and readings are put, and a reading that is lost costs one more look.

Readings of one shard stand in numbered files, 16 bytes each, a digest of the three: who asks has
all three.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embedmill.errors import AlreadyExistsError, DamagedFileError
from embedmill.numbered_files import NumberedFiles
from embedmill.parquet_files import from_parquet, to_parquet
from embedmill.segment import FORMAT, SegmentKey
from embedmill.workspace import Workspace, require

log = logging.getLogger(__name__)
# Readings wait for either before they are put: what a kill costs is reading that again.
_FILE_READINGS = 10_000
_FILE_BYTES = 64 * 2**20
# More files of a shard are put together at the end of a complete scan.
_MOST_FILES = 4
_SIZE = 16
_TYPE = pa.binary(_SIZE)

_Array: TypeAlias = npt.NDArray[np.bytes_]


class Readings(NumberedFiles):
    """The readings of one shard, for one scan."""

    def __init__(self, workspace: Workspace, index: str, chunking_id: str, shard: int) -> None:
        """Open nothing yet.

        Args:
            workspace: of the index.
            index: its name.
            chunking_id: of the ledger that they belong to, whose shard has one writer.
            shard: its number.
        """
        super().__init__(workspace, f"indexes/{index}/readings/{chunking_id}", ".parquet")
        self._shard = shard
        # Of the files that are there; None: not read yet.
        self._numbers: list[int] | None = None
        self._stored = _none()
        self._used = np.empty(0, bool)
        self._noted = bytearray()
        self._put = self._bytes = 0
        self._damaged = False

    def are_known(
        self, keys: Sequence[bytes], tags: Sequence[bytes], fingerprints: Sequence[bytes]
    ) -> Sequence[bool]:
        """Whether documents were read under these tags and had these contents."""
        self._read()
        if not len(self._stored) or not keys:
            return [False] * len(keys)
        wanted = _array(b"".join(map(_digest, keys, tags, fingerprints)))
        at = np.minimum(self._stored.searchsorted(wanted), len(self._stored) - 1)
        known = self._stored[at] == wanted
        self._used[at[known]] = True
        found: list[bool] = known.tolist()
        return found

    def note(self, key: bytes, tag: bytes, fingerprint: bytes, size: int) -> None:
        """Note a reading of so many bytes; it is put with others."""
        self._noted += _digest(key, tag, fingerprint)
        self._bytes += size
        waiting = len(self._noted) // _SIZE - self._put
        if waiting >= _FILE_READINGS or self._bytes >= _FILE_BYTES:
            self._put_noted()

    def finish(self, documents: int) -> None:
        """Put what is noted; the scan has come to its end.

        Where there are many files, or a damaged one, one takes their place.

        Args:
            documents: of the shard; where the scan has met as many, readings that it did not need
                are let go.
        """
        if not self._noted:
            return
        if len(self._read()) < _MOST_FILES and not self._damaged:
            self._put_noted()
            return
        met = int(self._used.sum()) + len(self._noted) // _SIZE
        kept = self._stored[self._used] if met >= documents else self._stored
        self._put_file(np.concatenate([kept, _array(self._noted)]))
        self.delete_below(self._shard, self._read()[-1])

    def _put_noted(self) -> None:
        self._read()
        fresh = _array(self._noted)[self._put :]
        self._put, self._bytes = len(self._noted) // _SIZE, 0
        self._put_file(fresh[~np.isin(fresh, self._stored)])

    def _put_file(self, readings: _Array) -> None:
        if not len(readings):
            return
        data = pa.py_buffer(np.unique(readings).tobytes())
        rows = pa.FixedSizeBinaryArray.from_buffers(_TYPE, len(data) // _SIZE, [None, data])
        table = pa.table({"reading": rows}).replace_schema_metadata({"format": FORMAT})
        file = to_parquet(table, compression="none")
        numbers = self._read()
        while True:
            numbers.append(numbers[-1] + 1 if numbers else 0)
            # A number that is taken is no conflict: what stands there is true, whoever put it.
            with suppress(AlreadyExistsError):
                self._workspace.create(self._path(SegmentKey(self._shard, numbers[-1])), file)
                return

    def _read(self) -> list[int]:
        """Numbers of the files, which are read by then."""
        if self._numbers is None:
            self._numbers = self.committed_of(self._shard)
            self._stored = np.unique(np.concatenate([_none(), *map(self._file, self._numbers)]))
            self._used = np.zeros(len(self._stored), bool)
        return self._numbers

    def _file(self, number: int) -> _Array:
        path = self._path(SegmentKey(self._shard, number))
        try:
            rows = from_parquet(require(self._workspace, path), path).column("reading")
        except DamagedFileError as error:
            log.warning("%s is left out: what it tells of is read again (%s)", path, error)
            self._damaged = True
            return _none()
        return _array(b"".join(rows.to_pylist()))


def _none() -> _Array:
    return np.empty(0, "S16")


def _array(joined: bytes | bytearray) -> _Array:
    return np.frombuffer(bytes(joined), "S16")


def _digest(key: bytes, tag: bytes, fingerprint: bytes) -> bytes:
    return blake2b(key + tag + fingerprint, digest_size=_SIZE).digest()
