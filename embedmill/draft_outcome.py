"""What drafting did: segments, counts, dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field

from embedmill.counts import DocumentCounts
from embedmill.dead_letter import DeadLetter
from embedmill.segment import SegmentKey


@dataclass(frozen=True, slots=True)
class Committed:
    """A segment that now exists.

    Attributes:
        key: its name.
        text_hashes: 16 bytes for each of its chunks, in the order of the rows.
    """

    key: SegmentKey
    text_hashes: bytes


@dataclass(slots=True)
class DraftOutcome:
    """What one call did.

    Attributes:
        committed: segments that now exist, in order.
        letters: of the documents that died.
        chunks: of the added and changed documents.
    """

    committed: list[Committed] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    chunks: int = 0
    # Not frozen counts: making a new one for each document took a sixth of drafting small ones.
    _tally: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> DocumentCounts:
        """Of the documents given."""
        return DocumentCounts(**self._tally)

    def count_one(self, what: str, *, empty: bool) -> None:
        """Add one document; takes half of the time of :meth:`count`."""
        self._tally[what] = self._tally.get(what, 0) + 1
        if empty:
            self._tally["empty"] = self._tally.get("empty", 0) + 1

    def count(self, **more: int) -> None:
        """Add to the counts."""
        for name, number in more.items():
            self._tally[name] = self._tally.get(name, 0) + number

    def add(self, other: DraftOutcome) -> None:
        """Add what another call did."""
        self.count(**other._tally)
        self.committed += other.committed
        self.letters += other.letters
        self.chunks += other.chunks
