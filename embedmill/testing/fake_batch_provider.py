"""A provider of embedding jobs in memory: faults by plan, a clock by hand, and a bill.

It reads the request files that it is given, embeds with hashed words, and finishes a job some
seconds after its creation. Like the real ones it forgets nothing, knows no idempotency, lists new
jobs late where that is planned, and charges for every text that it embeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
import orjson

from embedmill.batch_provider import (
    FILE_TOO_LARGE,
    QUEUE_FULL,
    BatchLimits,
    JobError,
    JobHandle,
    JobState,
    JobStatus,
    ListedJob,
    RequestFile,
    RowOutcome,
)
from embedmill.embedder import EmbeddedTexts, Role, Vectors
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import HashingEmbedderSettings
from embedmill.testing.fake_batch_jobs import (
    REFUSAL,
    Deed,
    FakeProviderJob,
    On,
    ProviderFault,
    rows_of,
    spoiled,
)

__all__ = ["FakeBatchProvider", "HandClock", "ProviderFault"]
_UNDER_WAY = ("pending", "running")


@dataclass(slots=True)
class HandClock:
    """UTC by hand."""

    now: datetime

    def __call__(self) -> datetime:
        """What time it is."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


@dataclass(slots=True)
class PaidTexts:
    """What was charged for, by text."""

    jobs: Counter[str] = field(default_factory=Counter)
    direct: Counter[str] = field(default_factory=Counter)

    @property
    def times(self) -> Counter[str]:
        """How often each text was charged for, by whatever way."""
        return self.jobs + self.direct

    def twice(self) -> dict[str, int]:
        """Texts that were charged for more than once."""
        return {text: times for text, times in self.times.items() if times > 1}


class FakeBatchProvider:
    """See :class:`~embedmill.batch_provider.BatchEmbeddingProvider` and the module.

    Attributes:
        kind: of its handles.
        limits: that it states.
        recipe: of its vectors.
        bill: what was charged for.
        jobs: all of them, in the order of their creation.
        calls: how many there were of each method.
        most_lines: that it takes in a file, whatever the limits state; None: any number.
        bulky: a text with this word is too large for any file; "": there is none.
        tells_late: it creates a job on a file that is too large, and the job fails.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        faults: Iterable[ProviderFault] = (),
        *,
        limits: BatchLimits | None = None,
        dimension: int = 8,
        takes_s: float = 600.0,
        listed_after_s: float = 0.0,
        poison: str = "",
    ) -> None:
        """Open an account.

        Args:
            clock: UTC.
            faults: what goes wrong.
            limits: that it states, and checks.
            dimension: of the vectors.
            takes_s: from the creation of a job to its end.
            listed_after_s: a job is missing from listings for so long.
            poison: a text with this word is refused, and with it its request.
        """
        self.kind = "fake"
        self.limits = limits or BatchLimits(window_s=86_400)
        settings = HashingEmbedderSettings(kind="hashing", dimension=dimension)
        self.recipe: EmbeddingRecipe = hashing_recipe(settings, "cosine")
        self.bill = PaidTexts()
        self.jobs: list[FakeProviderJob] = []
        self.calls: Counter[str] = Counter()
        self._model = HashingEmbedder(settings, self.recipe)
        self._clock = clock
        self._faults = list(faults)
        self._takes = timedelta(seconds=takes_s)
        self._listed_after = timedelta(seconds=listed_after_s)
        self._poison = poison
        self.most_lines: int | None = None
        self.bulky = ""
        self.tells_late = False

    def plan(self, *faults: ProviderFault) -> None:
        """Let more go wrong."""
        self._faults += faults

    def mend(self) -> None:
        """Let nothing go wrong any more."""
        self._faults.clear()

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """The realtime endpoint; see :class:`~embedmill.embedder.Embedder`."""
        embedded = self._model.embed(texts, role)
        bad = [at for at, text in enumerate(texts) if self._poison and self._poison in text]
        failures = dict(embedded.failures)
        for at in bad:
            embedded.vectors[at] = np.nan
            failures[at] = PermanentError(REFUSAL.message, code=REFUSAL.code)
        if role == "document":
            self.bill.direct.update(t for at, t in enumerate(texts) if at not in failures)
        return replace(embedded, failures=failures)

    def model_of(self, texts: Sequence[str]) -> Vectors:
        """The right vectors of texts, free of charge."""
        return self._model.embed(texts, "query").vectors

    def charged_twice(self) -> dict[str, int]:
        """Texts that were charged for more than once."""
        return self.bill.twice()

    def submit(
        self,
        requests: RequestFile,
        *,
        job_key: str,
        fingerprint: str,
        uploaded_since: datetime | None = None,  # noqa: ARG002 - uploads cost nothing
    ) -> JobHandle:
        """Create a job, or not."""
        faults = self._next("submit")
        lines = [orjson.loads(line) for line in requests.path.read_bytes().splitlines()]
        self._require_room(requests.tokens)
        asked = [(line["custom_id"], line["body"]["input"]) for line in lines]
        if self._is_too_large(asked) and not self.tells_late:
            raise RefusedError(f"{job_key}: 413", code=FILE_TOO_LARGE)
        deeds = {fault.do for fault in faults}
        for deed, error in (
            ("rate-limit", RateLimitedError("slowly", retry_after=_wait_of(faults))),
            ("queue-full", TransientError("full", code=QUEUE_FULL)),
            ("upload-lost", TransientError("lost", code="upload-lost")),
            ("unknown", OutcomeUnknownError("no reply")),
            ("refuse", RefusedError("no such file of requests", code="invalid_request")),
        ):
            if deed in deeds:
                raise error
        handle = JobHandle("fake", f"job-{len(self.jobs)}", "file", self._clock())
        self.jobs.append(
            FakeProviderJob(
                handle,
                job_key,
                fingerprint,
                asked,
                requests.tokens,
                self._next("job"),
            )
        )
        if "reply-lost" in deeds:
            raise OutcomeUnknownError("no reply")
        return handle

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """The oldest job of this key that did not fail, else the oldest, once it is listed."""
        self._next("find")
        found = [
            listed
            for listed in self.list_jobs(since - timedelta(minutes=5))
            if (listed.job_key, listed.fingerprint) == (job_key, fingerprint)
        ]
        found.sort(key=lambda job: (job.state.status == "failed", job.handle.created_at))
        return found[0].handle if found else None

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """What is listed by now, newest first."""
        for job in reversed(self.jobs):
            shown = job.handle.created_at + self._listed_after <= self._clock()
            if shown and job.handle.created_at >= since:
                yield ListedJob(job.handle, self._state_of(job), job.key, job.fingerprint)

    def state(self, job: JobHandle) -> JobState:
        """How it stands."""
        faults = self._next("state")
        if any(fault.do == "odd-status" for fault in faults):
            return JobState("unknown", "paused")
        return self._state_of(self._job(job))

    def cancel(self, job: JobHandle) -> None:
        """It ends a minute later, with half of its requests done."""
        self._next("cancel")
        found = self._job(job)
        if self._status(found) in _UNDER_WAY and found.cancelled is None:
            found.cancelled = self._clock()

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """What became of its rows."""
        faults = self._next("outcomes")
        found = self._job(job)
        self._status(found)
        if any(fault.do == "gone" for fault in faults):
            raise RefusedError("thirty days have passed", code="results-gone")
        if found.status is None:
            raise RefusedError("it runs", code="not-finished")
        rows = spoiled(found, list(rows_of(found, self._model, self._poison)))
        for fault in faults:
            if fault.do == "truncate":
                return self._broken(rows, fault.count)
        return iter(rows)

    @staticmethod
    def _broken(rows: Sequence[RowOutcome], count: int) -> Iterator[RowOutcome]:
        yield from rows[:count]
        raise TransientError("the file ends early", code="truncated-results")

    def _next(self, on: On) -> list[ProviderFault]:
        """Count a call, raise what any call may raise, and say what else goes wrong with it."""
        self.calls[on] += 1
        number = self.calls[on]
        planned = [
            fault
            for fault in self._faults
            if fault.on == on
            and number >= fault.call
            and (fault.times == 0 or number < fault.call + fault.times)
        ]
        errors: dict[Deed, EmbedmillError] = {
            "credentials": StopRunError("no such key", code="credentials"),
            "no-money": StopRunError("no credit", code="insufficient-quota"),
            "fail": TransientError("502"),
        }
        for fault in planned:
            if fault.do in errors:
                raise errors[fault.do]
        return planned

    def _require_room(self, tokens: int) -> None:
        waiting = sum(job.tokens for job in self.jobs if self._status(job) in _UNDER_WAY)
        most = self.limits.enqueued_tokens
        if most is not None and waiting + tokens > most:
            raise AssertionError(f"{waiting} tokens wait, {tokens} more are over the limit {most}")

    def _is_too_large(self, requests: Sequence[tuple[str, list[str]]]) -> bool:
        bulky = self.bulky and any(self.bulky in text for _, texts in requests for text in texts)
        return bool(bulky) or (self.most_lines is not None and len(requests) > self.most_lines)

    def _job(self, handle: JobHandle) -> FakeProviderJob:
        return next(job for job in self.jobs if job.handle.job_id == handle.job_id)

    def _state_of(self, job: FakeProviderJob) -> JobState:
        status = self._status(job)
        errors: tuple[JobError, ...] = ()
        if status == "failed":
            code = QUEUE_FULL if job.fault("fail-queue-full") else "invalid_request"
            code = FILE_TOO_LARGE if self._is_too_large(job.requests) else code
            errors = (JobError(code, "planned to fail"),)
        ended = status not in {*_UNDER_WAY, "failed"}
        return JobState(status, status, errors=errors, output_file_id="out" if ended else None)

    def _status(self, job: FakeProviderJob) -> JobStatus:
        """Where it is by now; at its end its rows are charged for, once."""
        if job.status is None:
            self._move(job)
        # What is too large never gets beyond its validation.
        return job.status or ("pending" if self._is_too_large(job.requests) else "running")

    def _move(self, job: FakeProviderJob) -> None:
        now = self._clock()
        if job.cancelled is not None:
            if now >= job.cancelled + timedelta(seconds=60):
                self._finish(job, "cancelled", len(job.requests) // 2)
            return
        if now < job.handle.created_at + self._takes or job.fault("stick"):
            return
        large = self._is_too_large(job.requests)
        if large or job.fault("fail-job") or job.fault("fail-queue-full"):
            job.status = "failed"
            return
        for deed, status in (("expire", "expired"), ("cancel-by-provider", "cancelled")):
            fault = next((fault for fault in job.faults if fault.do == deed), None)
            if fault is not None:
                self._finish(job, "expired" if status == "expired" else "cancelled", fault.count)
                return
        self._finish(job, "succeeded", len(job.requests))

    def _finish(self, job: FakeProviderJob, status: JobStatus, executed: int) -> None:
        job.status, job.executed = status, executed
        for row in rows_of(job, self._model, self._poison):
            if row.vector is not None:
                texts = dict(job.requests)[row.custom_id or ""]
                self.bill.jobs[texts[row.index or 0]] += 1


def _wait_of(faults: Sequence[ProviderFault]) -> float | None:
    return next((fault.wait for fault in faults if fault.do == "rate-limit"), None)
