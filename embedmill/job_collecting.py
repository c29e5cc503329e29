"""Collecting: the outcomes of a job, streamed, put in order on the local disk, checked as a whole.

Nothing of a job is written to the workspace before all of it was read and found to be what was
sent: a file with foreign, doubled or unnamed rows, or with a wrong answer to a known question, is
put in quarantine as a whole.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from embedmill.batch_provider import RowFailure, RowOutcome
from embedmill.embedder import Vectors
from embedmill.job_packing import canary_id
from embedmill.job_records import Intent
from embedmill.job_requests import custom_id
from embedmill.outcome_check import OutcomeCheck
from embedmill.plain_numbers import number_of
from embedmill.segment import SegmentKey

# A model that answers a known question with less than this is another model, or rows are swapped.
# Providers' own answers to equal questions differ by less than 0.001.
CANARY_COSINE = 0.99
# Of a row, while the outcomes are read: none of these means that it was not mentioned.
_GOOD, _FAILED = 1, 2
MISSING = RowFailure("retryable", "missing", "the provider's files do not mention the row")


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row without a vector.

    Attributes:
        key: of its segment.
        row: in the segment.
        failure: why.
        shared: its request failed as a whole and held other rows.
        missing: the files did not mention it.
    """

    key: SegmentKey
    row: int
    failure: RowFailure
    shared: bool
    missing: bool


@dataclass(slots=True)
class Collected:
    """What a job brought, in the order of its rows. A context manager that removes its file.

    Attributes:
        failed: rows without a vector.
        tokens: charged, as far as the outcomes say.
        problem: why none of it may be used; "" when it may.
    """

    intent: Intent
    dimension: int
    path: Path
    failed: list[FailedRow] = field(default_factory=list)
    tokens: int = 0
    problem: str = ""
    _has: bytearray = field(default_factory=bytearray)

    def segments(self) -> Iterator[tuple[SegmentKey, list[int], Vectors]]:
        """Rows with vectors, segment by segment; one segment in memory at a time."""
        position = 0
        with self.path.open("rb") as file:
            for key, rows in self.intent.rows().items():
                size = self.dimension * 4
                file.seek(position * size)
                data = np.frombuffer(file.read(len(rows) * size), np.float32)
                vectors = data.reshape(len(rows), self.dimension)
                good = [at for at in range(len(rows)) if self._has[position + at] == _GOOD]
                position += len(rows)
                whole = len(good) == len(rows)
                yield key, [rows[at] for at in good], vectors if whole else vectors[good]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.path.unlink(missing_ok=True)


def collect(
    intent: Intent,
    outcomes: Iterable[RowOutcome],
    *,
    dimension: int,
    canaries: Vectors | None,
    scratch: Path,
) -> Collected:
    """Read all outcomes of a job.

    Vectors go to a file at the place of their row as they come, so that memory holds a byte or two
    for each row whatever the dimension.

    Args:
        intent: what was sent.
        outcomes: in any order.
        dimension: of the vectors.
        canaries: expected answers, float32 (n, dimension); None: there are none.
        scratch: local folder.

    Raises:
        TransientError: the outcomes cannot be had whole now.
    """
    reading = _Reading(intent, dimension, scratch / f"results-{intent.key}.f32", canaries)
    try:
        for outcome in outcomes:
            reading.take(outcome)
    finally:
        reading.close()
    return reading.collected()


class _Reading:
    """One pass over the outcomes of a job."""

    def __init__(
        self, intent: Intent, dimension: int, path: Path, canaries: Vectors | None
    ) -> None:
        self._intent = intent
        self._dimension = dimension
        self._path = path
        self._canaries = canaries
        self._first: dict[str, int] = {}
        sent: dict[str, int] = {}
        position = 0
        for request in intent.requests:
            name = custom_id(request)
            sent[name] = len(request)
            self._first[name] = position
            position += len(request)
        self._places = [place for request in intent.requests for place in request]
        for number in range(intent.canaries):
            sent[canary_id(number)] = 1
        self._sent = sent
        self._check = OutcomeCheck(sent)
        self._has = bytearray(position)
        self._failed: list[FailedRow] = []
        self._wrong: Counter[str] = Counter()
        self._tokens = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.ftruncate(self._file, position * dimension * 4)

    def take(self, outcome: RowOutcome) -> None:
        """One outcome."""
        self._tokens += outcome.tokens
        if self._check.see(outcome) is not None or not outcome.custom_id:
            return
        if outcome.custom_id.startswith("canary."):
            self._compare(outcome)
            return
        first = self._first[outcome.custom_id]
        if outcome.index is None:
            count = self._sent[outcome.custom_id]
            for position in range(first, first + count):
                self._fail(position, outcome.failure or MISSING, shared=count > 1)
        elif outcome.vector is None:
            self._fail(first + outcome.index, outcome.failure or MISSING, shared=False)
        else:
            position = first + outcome.index
            data = np.ascontiguousarray(outcome.vector, dtype=np.float32).data
            os.pwrite(self._file, data, position * self._dimension * 4)
            self._has[position] = _GOOD

    def _fail(
        self, position: int, failure: RowFailure, *, shared: bool, missing: bool = False
    ) -> None:
        if not self._has[position]:
            self._has[position] = _FAILED
            key, row = self._places[position]
            self._failed.append(FailedRow(key, row, failure, shared, missing))

    def _compare(self, outcome: RowOutcome) -> None:
        number = int(str(outcome.custom_id).removeprefix("canary."))
        known = 0 if self._canaries is None else len(self._canaries)
        if self._canaries is None or outcome.vector is None or number >= known:
            # A canary that failed, or that is no longer asked for, says nothing about the others.
            return
        expected = self._canaries[number]
        cosine = float(np.dot(outcome.vector, expected))
        cosine /= float(np.linalg.norm(outcome.vector) * np.linalg.norm(expected)) or 1.0
        if cosine < CANARY_COSINE:
            self._wrong[f"known text {number} came back at cosine {cosine:.3f}"] += 1

    def close(self) -> None:
        """Close the file of vectors."""
        os.close(self._file)

    def collected(self) -> Collected:
        """All of it, with what is missing named."""
        problem = self._problem()
        for name, index in self._check.missing():
            if name in self._first:
                self._fail(self._first[name] + index, MISSING, shared=False, missing=True)
        return Collected(
            self._intent,
            self._dimension,
            self._path,
            self._failed,
            self._tokens,
            problem,
            self._has,
        )

    def _problem(self) -> str:
        said: Sequence[str] = [
            *(
                f"{number_of(count, 'outcome')}: {what}"
                for what, count in self._check.anomalies.items()
            ),
            *self._wrong,
        ]
        if not said and not any(self._has):
            return "they mention none of the rows"
        return "; ".join(said)
