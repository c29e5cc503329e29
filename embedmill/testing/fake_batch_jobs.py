"""Jobs of the in-memory provider: what is planned to go wrong with each, and what it brings."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import numpy as np

from embedmill.batch_provider import NO_CREDIT, JobHandle, JobStatus, RowFailure, RowOutcome
from embedmill.embedder import Embedder

On = Literal["submit", "find", "state", "outcomes", "cancel", "job"]
Deed = Literal[
    # submit: nothing came of it
    "rate-limit",
    "queue-full",
    "upload-lost",
    "unknown",
    "refuse",
    # submit: the job exists, and nobody is told
    "reply-lost",
    # any call
    "credentials",
    "no-money",
    "fail",
    # state
    "odd-status",
    # outcomes: breaks off after ``count`` of them
    "truncate",
    "gone",
    # job: how it ends, after ``count`` rows
    "expire",
    "cancel-by-provider",
    "fail-job",
    "fail-queue-full",
    "stick",
    # job: its outcomes; ``count`` of them
    "shuffle",
    "miss",
    "double",
    "foreign",
    "null-ids",
    "fail-rows",
    "reject-rows",
    "broke-rows",
    "nan-rows",
    "wrong-canary",
    "nothing",
]


@dataclass(frozen=True, slots=True)
class ProviderFault:
    """One thing that goes wrong.

    Attributes:
        on: call, or ``job``: the n-th that is created.
        do: what goes wrong.
        call: number of the first call that it happens to, from 1.
        times: how many calls in a row; 0: all from then on.
        count: of rows or outcomes.
        wait: seconds that a rate limit asks for; None: it does not say.
    """

    on: On
    do: Deed
    call: int = 1
    times: int = 1
    count: int = 1
    wait: float | None = None


@dataclass(slots=True)
class FakeProviderJob:
    """One job.

    Attributes:
        handle: of it.
        key: as submitted.
        fingerprint: as submitted.
        requests: custom id and texts of each line.
        tokens: of its texts.
        faults: that are planned for it.
        executed: requests that were run when it ended early.
        status: its end; None while it runs.
        cancelled: when that was asked for.
    """

    handle: JobHandle
    key: str
    fingerprint: str
    requests: list[tuple[str, list[str]]]
    tokens: int
    faults: list[ProviderFault]
    status: JobStatus | None = None
    executed: int = 0
    cancelled: datetime | None = None

    def fault(self, deed: Deed) -> ProviderFault | None:
        """The fault of this kind that is planned for this job."""
        return next((fault for fault in self.faults if fault.do == deed), None)


def rows_of(job: FakeProviderJob, model: Embedder, poison: str) -> Iterator[RowOutcome]:
    """What became of the rows of a job that has ended, in the order in which they were sent."""
    doomed = {fault.do: fault.count for fault in job.faults}
    for number, (custom_id, texts) in enumerate(job.requests):
        failure = None
        if number >= job.executed:
            failure = _NOT_EXECUTED[job.status == "expired"]
        elif not custom_id.startswith("canary."):
            poisoned = bool(poison) and any(poison in text for text in texts)
            failure = REFUSAL if poisoned else _planned_failure(doomed)
        if failure is not None:
            yield RowOutcome(custom_id, None, failure=failure)
            continue
        vectors = model.embed(texts, "document").vectors
        yield from (
            RowOutcome(custom_id, at, vector=vector, tokens=len(texts) if at == 0 else 0)
            for at, vector in enumerate(vectors)
        )


REFUSAL = RowFailure("permanent", "invalid_request", "the input is not valid")
_NOT_EXECUTED = (
    RowFailure("retryable", "batch_cancelled", "not executed"),
    RowFailure("expired", "batch_expired", "not executed"),
)


def _planned_failure(doomed: dict[Deed, int]) -> RowFailure | None:
    failures: dict[Deed, RowFailure] = {
        "fail-rows": RowFailure("retryable", "server_error", "500"),
        "reject-rows": RowFailure("permanent", "invalid_request", "400"),
        "broke-rows": RowFailure("retryable", NO_CREDIT, "no credit"),
    }
    for deed, failure in failures.items():
        if doomed.get(deed, 0) > 0:
            doomed[deed] -= 1
            return failure
    return None


def spoiled(job: FakeProviderJob, rows: list[RowOutcome]) -> list[RowOutcome]:
    """The rows as the files have them."""
    for fault in job.faults:
        spoil = _SPOILS.get(fault.do)
        if spoil is not None:
            plain = [at for at, row in enumerate(rows) if not is_canary(row)]
            rows = spoil(rows, plain[: fault.count])
    return rows


def is_canary(row: RowOutcome) -> bool:
    """Whether it answers a known question."""
    return (row.custom_id or "").startswith("canary.")


_Rows = list[RowOutcome]


def _shuffled(rows: _Rows, _: list[int]) -> _Rows:
    return random.Random(1).sample(rows, len(rows))  # noqa: S311 - no secret


def _without(rows: _Rows, some: list[int]) -> _Rows:
    return [row for at, row in enumerate(rows) if at not in some]


def _doubled(rows: _Rows, some: list[int]) -> _Rows:
    return rows + [rows[at] for at in some]


def _foreign(rows: _Rows, some: list[int]) -> _Rows:
    return rows + [replace(rows[at], custom_id="nobody's") for at in some]


def _nameless(rows: _Rows, some: list[int]) -> _Rows:
    return [replace(row, custom_id=None) if at in some else row for at, row in enumerate(rows)]


def _not_finite(rows: _Rows, some: list[int]) -> _Rows:
    bad = RowFailure("permanent", "not-finite", "NaN")
    return [
        replace(row, vector=None, failure=bad) if at in some and row.vector is not None else row
        for at, row in enumerate(rows)
    ]


def _wrong_canary(rows: _Rows, _: list[int]) -> _Rows:
    return [
        replace(row, vector=np.roll(row.vector, 1))
        if is_canary(row) and row.vector is not None
        else row
        for row in rows
    ]


_SPOILS: dict[Deed, Callable[[_Rows, list[int]], _Rows]] = {
    "shuffle": _shuffled,
    "miss": _without,
    "nothing": lambda _, __: [],
    "double": _doubled,
    "foreign": _foreign,
    "null-ids": _nameless,
    "nan-rows": _not_finite,
    "wrong-canary": _wrong_canary,
}
