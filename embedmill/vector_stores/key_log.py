"""A set of 64-bit keys on disk: an append-only log, folded into sorted arrays in memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from embedmill.vector_stores.store_folder import disk_error, disk_errors, put_file

Keys: TypeAlias = npt.NDArray[np.uint64]

# Per frame: added or removed, number of keys, crc32 of the keys. Then the keys, little endian.
_HEADER = struct.Struct("<4sII")
_ADDED, _REMOVED = b"add\n", b"del\n"


class KeySet:
    """A set in sorted runs, each at least twice as long as the one after it.

    8 bytes per key, up to 20 for the moment in which the longest runs are merged.
    """

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def absent(self, keys: Keys) -> Keys:
        """Those of ``keys`` that are not in the set, sorted, each once."""
        wanted = np.unique(keys)
        for run in self._runs:
            wanted = wanted[~_found(run, wanted)]
        return wanted

    def add(self, keys: Keys) -> None:
        """Add keys that are absent, sorted, each once."""
        if not len(keys):
            return
        self._runs.append(keys)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate((self._runs.pop(), self._runs.pop()))
            # Two sorted runs: a merge in linear time for the stable sort.
            merged.sort(kind="stable")
            self._runs.append(merged)

    def present(self, keys: Keys) -> Keys:
        """Those of ``keys`` that are in the set, sorted, each once."""
        return np.setdiff1d(keys, self.absent(keys))

    def remove(self, keys: Keys) -> None:
        """Remove keys, sorted, each once."""
        kept = (run[~_found(keys, run)] for run in self._runs)
        self._runs = [run for run in kept if len(run)]

    def all(self) -> Keys:
        """Every key, in no order."""
        return np.concatenate([np.empty(0, dtype=np.uint64), *self._runs])


class KeyLog:
    """A key set that the next process finds as this one left it.

    An addition is in the file when the call returns: it survives the end of the process, and a loss
    of power only after ``close``. A frame that was cut off by a crash is cut away at opening.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = KeySet()
        whole, logged = self._replay()
        # Half of the log speaks of keys that are gone: write it anew.
        if logged > 2 * len(self._keys) + 1000:
            content = b"".join(_frames(_ADDED, self._keys.all()))
            put_file(path, content)
            whole = len(content)
        self._size = whole
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, whole)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Keys) -> None:
        """Add keys; those that are there already change nothing."""
        fresh = self._keys.absent(keys)
        self._append(_ADDED, fresh)
        self._keys.add(fresh)

    def remove(self, keys: Keys) -> None:
        """Remove keys; absent ones change nothing."""
        gone = self._keys.present(keys)
        self._append(_REMOVED, gone)
        self._keys.remove(gone)

    def close(self) -> None:
        """Make the log survive a loss of power, and let go of it."""
        os.fsync(self._file)
        os.close(self._file)

    def _append(self, kind: bytes, keys: Keys) -> None:
        content = b"".join(_frames(kind, keys))
        with disk_errors(self._path.parent):
            try:
                written = os.write(self._file, content)
            except OSError:
                written = 0
                raise
            finally:
                # What stands after half a frame would never be read again.
                if written != len(content):
                    os.ftruncate(self._file, self._size)
        if written != len(content):
            raise disk_error(self._path.parent, "it is full")
        self._size += written

    def _replay(self) -> tuple[int, int]:
        """Fold the file into the set; return the bytes of whole frames and the keys in them."""
        content = self._path.read_bytes() if self._path.exists() else b""
        offset = logged = 0
        pending: list[Keys] = []
        for kind, keys in _whole_frames(content):
            offset += _HEADER.size + keys.nbytes
            logged += len(keys)
            if kind == _ADDED:
                pending.append(keys)
                continue
            self._fold(pending)
            self._keys.remove(keys)
        self._fold(pending)
        return offset, logged

    def _fold(self, pending: list[Keys]) -> None:
        if pending:
            self._keys.add(np.sort(np.concatenate(pending)))
            pending.clear()


def _found(run: Keys, keys: Keys) -> npt.NDArray[np.bool_]:
    if not len(run):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.searchsorted(run, keys)
    return np.asarray(run[np.minimum(places, len(run) - 1)] == keys)


def _frames(kind: bytes, keys: Keys) -> Iterator[bytes]:
    if len(keys):
        data = keys.astype("<u8").tobytes()
        yield _HEADER.pack(kind, len(keys), crc32(data))
        yield data


def _whole_frames(content: bytes) -> Iterator[tuple[bytes, Keys]]:
    offset = 0
    while offset + _HEADER.size <= len(content):
        kind, count, check = _HEADER.unpack_from(content, offset)
        offset += _HEADER.size
        data = memoryview(content)[offset : offset + 8 * count]
        if kind not in {_ADDED, _REMOVED} or len(data) < 8 * count or crc32(data) != check:
            return
        offset += 8 * count
        yield kind, np.frombuffer(data, dtype="<u8").astype(np.uint64)
