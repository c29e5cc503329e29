"""Rows of segments on their way through embedding jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from embedmill.segment import SegmentKey
from embedmill.text_index import Loan

Rows = Mapping[SegmentKey, Sequence[int]]
# SETTLED: needs no job (its text stands elsewhere). OPEN: to be sent. FLYING: in a job.
# KEPT: its vector is safe in the workspace. DEAD: will have none. DROPPED: nobody wants one.
SETTLED, OPEN, FLYING, KEPT, DEAD_ROW, DROPPED = range(6)


@dataclass(slots=True)
class SegmentRows:
    """One segment that waits for vectors. A few bytes a row; texts and vectors stay on disk.

    Attributes:
        key: of the segment.
        loans: rows that may take the vector of an equal text of another segment.
        awaited: loans of segments that have no vectors yet.
        state: of each row, see the constants.
        alone: the row needs a request of its own.
        tokens: of each row.
        dead: (code, message) of the rows that died.
    """

    key: SegmentKey
    loans: Sequence[Loan]
    awaited: Sequence[Loan]
    state: npt.NDArray[np.uint8]
    alone: npt.NDArray[np.bool_]
    tokens: npt.NDArray[np.int32]
    dead: dict[int, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, key: SegmentKey, loans: Sequence[Loan], tokens: npt.NDArray[np.int32]
    ) -> SegmentRows:
        """All rows settled, for a segment with these token counts."""
        count = len(tokens)
        return cls(
            key,
            loans,
            (),
            np.zeros(count, np.uint8),
            np.zeros(count, np.bool_),
            tokens.astype(np.int32),
        )

    def open_rows(self) -> list[int]:
        """Rows to be sent, ascending."""
        return [int(row) for row in np.flatnonzero(self.state == OPEN)]

    def open_among(self, rows: Iterable[int]) -> list[int]:
        """Of these rows the ones to be sent, ascending and each once."""
        return sorted({row for row in rows if self.state[row] == OPEN})

    @property
    def open_count(self) -> int:
        """How many rows are to be sent."""
        return int(np.count_nonzero(self.state == OPEN))

    @property
    def unsettled(self) -> int:
        """Rows that are to be sent or in a job."""
        return int(((self.state == OPEN) | (self.state == FLYING)).sum())

    def land(self, rows: Sequence[int]) -> None:
        """A job brought nothing for these rows: those that are not settled otherwise are open."""
        at = np.asarray(rows, np.int64)
        self.state[at[self.state[at] == FLYING]] = OPEN

    def lost(self) -> set[int]:
        """Rows that will have no vector."""
        return set(np.flatnonzero((self.state == DEAD_ROW) | (self.state == DROPPED)).tolist())

    def wait_no_more(self, lender: SegmentKey, lost: Collection[int]) -> list[int]:
        """Let rows that wait for these rows of a lender be open; they are returned, ascending."""
        given_up = {
            loan.row for loan in self.awaited if loan.source == lender and loan.source_row in lost
        }
        if not given_up:
            return []
        self.awaited = [loan for loan in self.awaited if loan.row not in given_up]
        opened = [row for row in sorted(given_up) if self.state[row] == SETTLED]
        self.state[opened] = OPEN
        return opened

    def drop(self, rows: npt.NDArray[np.int64]) -> None:
        """Nobody wants these rows any more: those that are to be sent will not be."""
        self.state[rows[self.state[rows] == OPEN]] = DROPPED

    def flying(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Of these rows the ones in a job."""
        return np.asarray(rows[self.state[rows] == FLYING])

    def settle(self, row: int) -> None:
        """A row needs no job: another segment has its text."""
        self.state[row] = SETTLED

    def bury(self, row: int, code: str, message: str) -> None:
        """A row dies."""
        self.state[row] = DEAD_ROW
        self.dead[row] = (code, message)


@dataclass(slots=True)
class RowHistory:
    """What jobs did to rows; of segments that were not offered yet, whatever they did.

    Attributes:
        flying: rows in jobs that are not collected, of segments that were not offered.
        tries: counted jobs of rows that are to be sent again.
        alone: rows that need a request of their own.
        dead: rows that died, with code and message.
    """

    flying: dict[SegmentKey, set[int]] = field(default_factory=dict)
    tries: dict[SegmentKey, dict[int, int]] = field(default_factory=dict)
    alone: dict[SegmentKey, set[int]] = field(default_factory=dict)
    dead: dict[SegmentKey, dict[int, tuple[str, str]]] = field(default_factory=dict)

    def fly(self, rows: Rows) -> None:
        """Rows are in a job."""
        for key, some in rows.items():
            self.flying.setdefault(key, set()).update(some)

    def land(self, key: SegmentKey, rows: Sequence[int]) -> None:
        """Rows are no longer in a job."""
        self.flying.get(key, set()).difference_update(rows)

    def remember(
        self, tried: Rows, alone: Rows, dead: Iterable[tuple[int, int, int, str, str]]
    ) -> None:
        """What a collected job said of its rows.

        Args:
            tried: rows that are to be sent again, and were tried.
            alone: rows that need a request of their own.
            dead: (shard, number, row, code, message) of rows that died.
        """
        for key, some in tried.items():
            tries = self.tries.setdefault(key, {})
            for row in some:
                tries[row] = tries.get(row, 0) + 1
        for key, some in alone.items():
            self.alone.setdefault(key, set()).update(some)
        for shard, number, row, code, message in dead:
            self.dead.setdefault(SegmentKey(shard, number), {})[row] = (code, message)

    def tries_of(self, key: SegmentKey, row: int) -> int:
        """Counted jobs that a row has been in."""
        return self.tries.get(key, {}).get(row, 0)

    def apply(self, rows: SegmentRows) -> None:
        """Mark the rows of a segment that is offered now: lonely, dead, in jobs."""
        key = rows.key
        for row in self.alone.get(key, ()):
            rows.alone[row] = True
        for row, reason in self.dead.get(key, {}).items():
            rows.bury(row, *reason)
        for row in self.flying.pop(key, ()):
            rows.state[row] = FLYING
