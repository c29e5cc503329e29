"""Texts whose lender died, or let go of them: one segment sends each, the others wait for that one.

Without it every borrower of the text would send it, and each would be paid for.
"""

from __future__ import annotations

from collections.abc import Mapping

from embedmill.job_rows import DEAD_ROW, FLYING, KEPT, OPEN, SegmentRows
from embedmill.text_index import Loan


class Heirs:
    """Which row sends a text now. Such texts are few: the rows of their segments are held."""

    def __init__(self) -> None:
        self._places: dict[bytes, tuple[SegmentRows, int]] = {}

    def bequeath(self, rows: SegmentRows, texts: Mapping[int, bytes]) -> list[Loan]:
        """Decide about rows to be sent whose lenders cannot lend.

        Where no other segment has tried since, the row stays open, and is the heir. Where one does,
        or has, the row is settled: it waits for that. Where the text died there as well, it dies
        here: two segments have tried.

        Args:
            rows: of the segment.
            texts: hash of each such row.

        Returns:
            Loans of the rows that wait.
        """
        known = set(rows.loans)
        loans = []
        for row, text in texts.items():
            heir, at = self._places.get(text, (rows, row))
            loan = Loan(row, heir.key, at)
            if heir.state[at] == DEAD_ROW:
                rows.bury(row, *heir.dead[at])
            elif heir is rows or loan in known or heir.state[at] not in (OPEN, FLYING, KEPT):
                self._places[text] = rows, row
            else:
                rows.settle(row)
                loans.append(loan)
        return loans
