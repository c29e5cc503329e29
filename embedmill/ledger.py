"""The ledger of a shard: which document stands in which segment, folded from the document rows.

Rows are kept sorted, 50 bytes a document, with a small dictionary of the latest changes that is
merged in when it reaches an eighth of the rows (or 4,096 entries): at most about 100 bytes a
document with the dictionary at its fullest. Documents are known by the 16 bytes of their key; who
needs an id reads it from the segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embedmill.rereading import undisturbed
from embedmill.segment import ChunkLayer, SegmentKey, digests_in

LEDGER_COLUMNS = (
    "doc_key",
    "deleted",
    "fingerprint",
    "chunk_count",
    "previous_segment",
)
_ROW = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("fingerprint", "S16"),
        ("chunk_count", "<i4"),
        ("segment", "<i4"),
        ("was_known", "?"),
        ("seen", "?"),
    ]
)
_Rows = npt.NDArray[np.void]
# Of one row.
_Values: TypeAlias = tuple[int, int, bytes, int, int, bool, bool]
_HALVES = struct.Struct(">QQ")
# Below this many changes a merge costs more than the dictionary.
_SMALL = 4_096


class LedgerEntry(NamedTuple):
    """Where a document stands.

    Attributes:
        fingerprint: 16 bytes over what was read.
        chunk_count: chunks it has; 0 for an empty document.
        segment: number of the segment that holds its current chunks.
        was_known: whether it existed before that segment (a change, not an addition).
    """

    fingerprint: bytes
    chunk_count: int
    segment: int
    was_known: bool


# A deleted document keeps its row until the fold: a negative count marks it.
_GONE = LedgerEntry(b"", -1, -1, was_known=False)


class Ledger:
    """One shard's ledger. Also notes which documents the current scan has seen."""

    def __init__(self) -> None:
        # Rows of keys that were looked up, -1 for none, and what stands in them.
        self._known: dict[bytes, int] = {}
        self._entries: dict[bytes, LedgerEntry] = {}
        self._set_rows(np.empty(0, _ROW))
        self._latest: dict[bytes, LedgerEntry | None] = {}
        self._latest_seen: set[bytes] = set()
        self._size = 0

    def __len__(self) -> int:
        """Number of documents."""
        return self._size

    @classmethod
    def fold(cls, layer: ChunkLayer, shard: int) -> tuple[Ledger, int]:
        """Fold the committed segments of a shard, in order; the last row of a document wins.

        Returns:
            The ledger and the next free segment number.
        """
        return undisturbed(lambda: cls._fold(layer, shard))

    @classmethod
    def _fold(cls, layer: ChunkLayer, shard: int) -> tuple[Ledger, int]:
        numbers = layer.committed_of(shard)
        ledger = cls()
        parts = [
            _columns(layer.docs(SegmentKey(shard, number), LEDGER_COLUMNS), number)
            for number in numbers
        ]
        if parts:
            ledger._set_rows(_last_of_each(np.concatenate(parts)))
            ledger._size = len(ledger._rows)
        return ledger, (numbers[-1] + 1 if numbers else 0)

    def look_up(self, keys: Sequence[bytes]) -> None:
        """Find many documents at once; they are the next to be asked for.

        A block of documents that are all unchanged takes half of the time of asking one by one.
        """
        self._known, self._entries = dict.fromkeys(keys, -1), {}
        if not len(self._high) or not keys:
            return
        halves = np.frombuffer(b"".join(keys), ">u8").astype("<u8").reshape(-1, 2)
        at = np.minimum(self._high.searchsorted(halves[:, 0]), len(self._high) - 1)
        high = self._high[at] == halves[:, 0]
        found = np.where(high & (self._low[at] == halves[:, 1]), at, -1)
        self._known = dict(zip(keys, found.tolist(), strict=True))
        there = np.flatnonzero(found >= 0)
        entries = map(_entry, self._rows[found[there]].tolist())
        self._entries = dict(zip(map(keys.__getitem__, there.tolist()), entries, strict=True))
        for at_key in np.flatnonzero(high & (found < 0)).tolist():
            # Two documents that have half of the key in common: nearly never.
            self._known[keys[at_key]] = self._search(keys[at_key])

    def get(self, key: bytes) -> LedgerEntry | None:
        """The entry of a document, or None."""
        if key in self._latest:
            return self._latest[key]
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        row = self._find(key)
        return None if row < 0 else _entry(self._rows[row].item())

    def put(self, key: bytes, entry: LedgerEntry) -> None:
        """Set a document's entry."""
        if self.get(key) is None:
            self._size += 1
        self._latest[key] = entry
        self._merge_when_full()

    def remove(self, key: bytes) -> None:
        """Forget a document."""
        if self.get(key) is not None:
            self._size -= 1
        self._latest[key] = None
        self._merge_when_full()

    def see(self, key: bytes) -> bool:
        """Note that the scan met this document.

        Returns:
            False when the scan had met it before: the source holds the id twice.
        """
        if key in self._latest_seen:
            return False
        row = self._find(key)
        if row >= 0:
            if self._seen[row]:
                return False
            self._seen[row] = True
            return True
        self._latest_seen.add(key)
        return True

    def unseen(self) -> list[tuple[bytes, LedgerEntry]]:
        """Documents that the scan has not met, in the order of their segments."""
        self._merge()
        rows = self._rows[~self._rows["seen"]]
        rows = rows[np.argsort(rows["segment"], kind="stable")]
        return [(_key(row), _entry(row.item())) for row in rows]

    def unseen_count(self) -> int:
        """How many documents the scan has not met."""
        self._merge()
        return int((~self._rows["seen"]).sum())

    def chunk_total(self) -> int:
        """Chunks of all documents."""
        self._merge()
        return int(self._rows["chunk_count"].sum(dtype=np.int64))

    def live_segments(self) -> dict[int, int]:
        """Segments that hold the current chunks of some document, and how many chunks that are."""
        self._merge()
        numbers, at = np.unique(self._rows["segment"], return_inverse=True)
        totals = np.bincount(at, weights=self._rows["chunk_count"], minlength=len(numbers))
        return {int(n): int(total) for n, total in zip(numbers, totals, strict=True)}

    def documents_in(self, segment: int) -> set[bytes]:
        """Keys of the documents whose current chunks stand in a segment."""
        self._merge()
        return {_key(row) for row in self._rows[self._rows["segment"] == segment]}

    def entries(self) -> Iterator[tuple[bytes, LedgerEntry]]:
        """All documents, in the order of their keys."""
        self._merge()
        for row in self._rows:
            yield _key(row), _entry(row.item())

    def _set_rows(self, rows: _Rows) -> None:
        self._rows = rows
        self._known, self._entries = {}, {}
        # Views of columns: to name one takes longer than to read a value of it.
        self._low, self._seen = rows["low"], rows["seen"]
        # searchsorted would copy a column of the structured rows on every call.
        self._high = np.ascontiguousarray(rows["high"])

    def _find(self, key: bytes) -> int:
        # A document is looked up several times in a row: seen, got, put.
        row = self._known.get(key)
        if row is None:
            row = self._search(key)
            self._known = {key: row}
        return row

    def _search(self, key: bytes) -> int:
        if not len(self._high):
            return -1
        high, low = _halves(key)
        row = int(self._high.searchsorted(np.uint64(high)))
        while row < len(self._high) and int(self._high[row]) == high:
            if int(self._low[row]) == low:
                return row
            row += 1
        return -1

    def _merge_when_full(self) -> None:
        if len(self._latest) > max(_SMALL, len(self._rows) // 8):
            self._merge()

    def _merge(self) -> None:
        if not self._latest:
            return
        fresh = np.empty(len(self._latest), _ROW)
        keys = np.frombuffer(b"".join(self._latest), ">u8").reshape(-1, 2)
        fresh["high"], fresh["low"] = keys[:, 0], keys[:, 1]
        fresh["seen"] = [k in self._latest_seen or self._was_seen(k) for k in self._latest]
        # Column by column: two fifths of the time that it takes value by value.
        entries = [_GONE if entry is None else entry for entry in self._latest.values()]
        for name, values in zip(LedgerEntry._fields, zip(*entries, strict=True), strict=True):
            fresh[name] = values
        self._set_rows(_last_of_each(np.concatenate([self._rows, fresh])))
        self._latest_seen -= self._latest.keys()
        self._latest.clear()

    def _was_seen(self, key: bytes) -> bool:
        row = self._find(key)
        return row >= 0 and bool(self._rows["seen"][row])


def _columns(docs: pa.Table, number: int) -> _Rows:
    keys = _fixed_bytes(docs.column("doc_key"), 16).view(">u8").reshape(-1, 2)
    rows = np.zeros(len(keys), _ROW)
    rows["high"], rows["low"] = keys[:, 0], keys[:, 1]
    rows["fingerprint"] = _fixed_bytes(docs.column("fingerprint"), 16).view("S16").ravel()
    rows["chunk_count"] = docs.column("chunk_count").to_numpy()
    rows["segment"] = number
    rows["was_known"] = docs.column("previous_segment").to_numpy() >= 0
    deleted = docs.column("deleted").to_numpy(zero_copy_only=False)
    rows["chunk_count"][deleted] = _GONE.chunk_count
    return rows


def _fixed_bytes(column: pa.ChunkedArray, width: int) -> npt.NDArray[np.uint8]:
    array = column.combine_chunks()
    buffer = array.buffers()[1]
    start = array.offset * width
    data = np.frombuffer(buffer, np.uint8)[start : start + len(array) * width]
    return data.reshape(-1, width)


def _last_of_each(rows: _Rows) -> _Rows:
    """Of rows in the order of time the last of each key, sorted; without those that are gone."""
    # Rows of one key stay in their order.
    order = np.lexsort((rows["low"], rows["high"]))
    rows = rows[order]
    rows = rows[_is_last(rows)]
    return rows[rows["chunk_count"] >= 0]


def _is_last(rows: _Rows) -> npt.NDArray[np.bool_]:
    """Of sorted rows, those whose successor has another key."""
    last = np.ones(len(rows), bool)
    if len(rows) > 1:
        same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
        last[:-1] = ~same
    return last


def _halves(key: bytes) -> tuple[int, int]:
    high, low = _HALVES.unpack(key)
    return high, low


def _key(row: np.void) -> bytes:
    return int(row["high"]).to_bytes(8, "big") + int(row["low"]).to_bytes(8, "big")


def _entry(values: _Values) -> LedgerEntry:
    _, _, fingerprint, chunk_count, segment, known, _ = values
    # numpy drops trailing zero bytes of an S16; the fingerprint has them.
    return LedgerEntry(fingerprint.ljust(16, b"\0"), chunk_count, segment, known)


def doc_ids_of(
    layer: ChunkLayer, shard: int, wanted: Sequence[tuple[bytes, LedgerEntry]]
) -> Iterator[tuple[str, bytes, LedgerEntry]]:
    """Find the ids of documents that are known by key, reading each of their segments once.

    Args:
        layer: the shard's chunk layer.
        shard: its number.
        wanted: keys and entries, in the order of their segments.
    """
    names: dict[bytes, str] = {}
    current = -1
    for key, entry in wanted:
        if entry.segment != current:
            docs = layer.docs(SegmentKey(shard, entry.segment), ("doc_id", "doc_key"))
            keys, ids = digests_in(docs.column("doc_key")), docs.column("doc_id").to_pylist()
            names = dict(zip(keys, ids, strict=True))
            current = entry.segment
        yield names[key], key, entry
