"""Comparing the outcomes of a job with what was sent: each text once, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from embedmill.batch_provider import RowOutcome

Anomaly = Literal["no-id", "unknown-id", "unknown-index", "double"]


class OutcomeCheck:
    """Knows what was sent, sees every outcome, and says what does not fit.

    Made of the number of texts of each request, by custom id. A failure of a whole request counts
    for those of its texts that had no outcome before.

    Attributes:
        anomalies: how often each was seen. Any of them means that the provider mixed something up:
            none of the results can be trusted to belong to their texts.
    """

    def __init__(self, sent: Mapping[str, int]) -> None:
        self.anomalies: Counter[Anomaly] = Counter()
        # One byte a text: whether it had an outcome.
        self._seen = {custom_id: bytearray(count) for custom_id, count in sent.items()}

    def see(self, outcome: RowOutcome) -> Anomaly | None:
        """Take note of an outcome; None when it is the first for a text that was sent."""
        anomaly = self._anomaly_of(outcome)
        if anomaly:
            self.anomalies[anomaly] += 1
        return anomaly

    def _anomaly_of(self, outcome: RowOutcome) -> Anomaly | None:
        if not outcome.custom_id:
            # A failure that belongs to nobody does no harm: its text will be missing.
            return "no-id" if outcome.failure is None else None
        seen = self._seen.get(outcome.custom_id)
        if seen is None:
            return "unknown-id"
        if outcome.index is None:
            whole = all(seen)
            seen[:] = b"\1" * len(seen)
            return "double" if whole else None
        if not 0 <= outcome.index < len(seen):
            return "unknown-index"
        double = bool(seen[outcome.index])
        seen[outcome.index] = 1
        return "double" if double else None

    def missing(self) -> Iterator[tuple[str, int]]:
        """Texts without any outcome so far: custom id and index."""
        for custom_id, seen in self._seen.items():
            yield from ((custom_id, index) for index, had in enumerate(seen) if not had)
