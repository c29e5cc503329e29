"""The contract of a provider of embedding jobs: input and output, no decisions.

What to submit, when to ask again, what to resubmit and what a row's failure means is decided by the
state machine that drives a provider; nothing here remembers anything between calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]

# Code of the TransientError (create) and of the JobError (later) that say: the queue is full of
# our own tokens, nothing ran, nothing was charged; wait for minutes, then submit again.
QUEUE_FULL = "enqueued-token-limit"
# Code of the RowFailure and of the JobError that say: not executed, for nobody pays. Trying again
# is of no use before a person has done something about it.
NO_CREDIT = "insufficient-quota"
# Code of the RefusedError (submit) and of the JobError (later) that say: the file exceeds what is
# taken, in lines or bytes; nothing ran. Smaller files may pass, the same one never will.
FILE_TOO_LARGE = "file-too-large"

JobStatus = Literal[
    "pending", "running", "finalizing", "succeeded", "expired", "cancelled", "failed", "unknown"
]
_TERMINAL: frozenset[JobStatus] = frozenset({"succeeded", "expired", "cancelled", "failed"})

FailureClass = Literal["retryable", "permanent", "expired"]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a provider takes; read by the packer and by the writer. None: not known, not checked.

    The figures are to plan with: where a provider's own count may differ from ours (tokens,
    megabytes) they lie below what it states.

    Attributes:
        requests_per_file: lines.
        inputs_per_file: texts over all lines.
        bytes_per_file: of the file.
        inputs_per_request: texts of one line.
        tokens_per_input: of one text.
        tokens_per_request: over the texts of one line.
        enqueued_tokens: over all jobs of the model that are not finished.
        enqueued_requests: lines, over the same jobs.
        jobs_at_a_time: that are not finished.
        creations_per_hour: of jobs.
        window_s: within which the provider finishes a job or gives up what is left of it.
        custom_id_bytes: length of a line's id, ASCII only.
        cancelled_rows_are_kept: a job that is cancelled brings what it has done. Where it does
            not, that is paid for and lost, and nothing is cancelled that is still wanted.
    """

    requests_per_file: int | None = None
    inputs_per_file: int | None = None
    bytes_per_file: int | None = None
    inputs_per_request: int | None = None
    tokens_per_input: int | None = None
    tokens_per_request: int | None = None
    enqueued_tokens: int | None = None
    enqueued_requests: int | None = None
    jobs_at_a_time: int | None = None
    creations_per_hour: int | None = None
    window_s: int | None = None
    custom_id_bytes: int | None = None
    cancelled_rows_are_kept: bool = True


@dataclass(frozen=True, slots=True)
class RequestFile:
    """A finished file of requests on the local disk.

    Attributes:
        path: of the file.
        job_key: names the job; part of the name under which the file is uploaded.
        fingerprint: of the bytes of the file.
        requests: lines.
        inputs: texts over all lines.
        bytes: size of the file.
        tokens: over all texts, as they were counted when it was written.
    """

    path: Path
    job_key: str
    fingerprint: str
    requests: int
    inputs: int
    bytes: int
    tokens: int


@dataclass(frozen=True, slots=True)
class JobHandle:
    """What finds a job again, from any process.

    Attributes:
        provider: kind of provider.
        job_id: the provider's own.
        input_file_id: the provider's own; empty when it did not say.
        created_at: by the provider's clock, UTC.
    """

    provider: str
    job_id: str
    input_file_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Requests of a job by the provider's own count; not to be trusted after a cancel."""

    total: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job as a whole was not run.

    Attributes:
        code: of the provider, but :data:`QUEUE_FULL` or :data:`NO_CREDIT` where that is meant.
        message: redacted.
        line: of the file, from 1; providers report the first offending line only.
    """

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job stands.

    Attributes:
        status: in our own words; ``unknown`` is never the end of a job. A job that is being
            cancelled is ``finalizing``.
        raw_status: in the provider's words.
        counts: by the provider.
        output_file_id: of the rows that were executed; None as long as there is no such file.
            Expired and cancelled jobs may have one, and what it holds was paid for.
        error_file_id: of the rows that failed or were never executed; None when there is none.
        errors: why the whole job failed.
        tokens: charged for, as far as the provider says; None when it does not.
    """

    status: JobStatus
    raw_status: str
    counts: JobCounts = JobCounts()
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: tuple[JobError, ...] = ()
    tokens: int | None = None

    @property
    def terminal(self) -> bool:
        """Whether nothing about this job will change any more."""
        return self.status in _TERMINAL

    @property
    def taken(self) -> bool:
        """Whether the provider has taken the job's file: it works on it, or has."""
        return self.status in {"running", "succeeded", "expired"}

    @property
    def brought_nothing(self) -> bool:
        """Whether it ended early, and without any file."""
        early = self.status in {"expired", "cancelled"}
        return early and not (self.output_file_id or self.error_file_id)

    @property
    def queue_full(self) -> bool:
        """Whether it failed only because too many tokens were waiting: it never ran."""
        return self._failed_by(QUEUE_FULL)

    @property
    def too_large(self) -> bool:
        """Whether it failed only because its file exceeds what the provider takes."""
        return self._failed_by(FILE_TOO_LARGE)

    @property
    def unpaid(self) -> bool:
        """Whether it failed because nobody pays: it never ran."""
        return self._failed_by(NO_CREDIT)

    def _failed_by(self, code: str) -> bool:
        return self.status == "failed" and any(error.code == code for error in self.errors)


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job as a listing shows it.

    Attributes:
        handle: finds it again.
        state: at the time of the listing.
        job_key: as submitted; empty when it is not one of ours.
        fingerprint: as submitted; empty when it is not one of ours.
    """

    handle: JobHandle
    state: JobState
    job_key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RowFailure:
    """Why a row has no vector.

    Attributes:
        kind: ``retryable``: not the row's fault (server error, no credit, cancelled, a broken
            reply); ``permanent``: the row itself was refused, or its vector is unusable;
            ``expired``: the window closed before it was executed.
        code: short and stable: the provider's own or one of ours; :data:`NO_CREDIT` whatever
            the provider calls it.
        message: redacted.
    """

    kind: FailureClass
    code: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class RowOutcome:
    """What became of one text, or of one request as a whole.

    Attributes:
        custom_id: of the request, as the provider gave it back; None when it gave none.
        index: of the text within its request; None when the whole request failed.
        vector: float32, of the right dimension, finite, norm as the recipe says; a view of an array
            that neighbours share. None when ``failure`` says why.
        failure: None when there is a vector.
        tokens: of the whole request, on the first of its outcomes, so that the sum is the bill.
    """

    custom_id: str | None
    index: int | None
    vector: Vector | None = None
    failure: RowFailure | None = None
    tokens: int = 0


class BatchEmbeddingProvider(Protocol):
    """Talks to one provider about jobs of one embedding recipe.

    Every method may raise, besides what it names:

    * ``StopRunError``: no call can succeed; code ``credentials`` (key, rights) or
      ``insufficient-quota`` (money).
    * ``RateLimitedError``: wait as it says, or as you see fit where it does not.
    * ``TransientError``: nothing happened, or nothing that a repetition would not find again.
    * ``RefusedError``: the provider refused the request itself; repeating it is pointless.
    """

    # Which way it sends jobs, as handles have it: jobs of one are not found by another.
    kind: str
    limits: BatchLimits

    def submit(
        self,
        requests: RequestFile,
        *,
        job_key: str,
        fingerprint: str,
        uploaded_since: datetime | None = None,
    ) -> JobHandle:
        """Upload the file and create the job. Never repeats the creation by itself.

        Args:
            requests: the file; its name at the provider follows from key and fingerprint.
            job_key: travels with the job and finds it again.
            fingerprint: of the requests; travels with the job and finds it again.
            uploaded_since: look first for an upload of the same name and size that is not older;
                for repetitions, whose first upload may have succeeded without us knowing.

        Raises:
            OutcomeUnknownError: the job may exist, and cost money: :meth:`find` it before
                submitting again. It may take a minute to be listed.
            TransientError: no job was created. Code :data:`QUEUE_FULL`: too many tokens are
                waiting; ``upload-lost``: the reply to the upload was lost.
        """
        ...

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """Look for a job that was submitted with this key and fingerprint.

        Args:
            job_key: as submitted.
            fingerprint: as submitted.
            since: when the intent to submit was written, by our clock; jobs up to five minutes
                older are looked at too, for clocks that differ.

        Returns:
            The job; where there are several, the oldest that did not fail, else the oldest. None:
            there is no such job, as far as the provider's listing shows.
        """
        ...

    def state(self, job: JobHandle) -> JobState:
        """Ask how the job stands."""
        ...

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """Read what became of every row, from the output and the error file both, in no order.

        Memory is bounded whatever the size of the files. A download that breaks off is taken up
        again where it stopped. Each outcome is as the files have it: rows may be missing, double,
        unknown or without id, and whoever reads them has to compare with what was sent
        (:class:`~embedmill.outcome_check.OutcomeCheck`).

        Raises:
            RefusedError: code ``not-finished``: the job is not in a terminal state;
                ``results-gone``: the provider no longer has the file.
            TransientError: code ``truncated-results``: the file cannot be had whole. Rows that
                were yielded before are good.
        """
        ...

    def cancel(self, job: JobHandle) -> None:
        """Ask for the job to be cancelled; one that is finished already is no error.

        The job goes on for minutes, keeps what it produced, and charges for it.
        """
        ...

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """All jobs created since then, newest first; those of others too."""
        ...
