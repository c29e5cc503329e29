"""The fake OpenAI server's jobs: from creation through validation to one of their ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from embedmill.testing.openai_account import Account, ApiError, page
from embedmill.testing.openai_faults import Deed, Fault
from embedmill.testing.openai_job_results import Results, write_results

WINDOW_S = 86_400
MOST_LINES = MOST_INPUTS = 50_000
_ACTIVE = ("validating", "in_progress", "finalizing", "cancelling")
_ENDPOINTS = ("/v1/embeddings",)


class JobRefusedError(Exception):
    """Validation found a line that the job cannot have."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.record = {"code": code, "message": message, "param": param, "line": line}


@dataclass(slots=True)
class FakeJob:
    """One job."""

    id: str
    input_file_id: str
    metadata: dict[str, str] | None
    created_at: int
    faults: list[Fault]
    status: str = "validating"
    model: str | None = None
    lines: int = 0
    tokens: int = 0
    polls: int = 0
    stayed: int = 0
    moments: dict[str, int] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    results: Results = field(default_factory=Results)

    def fault(self, deed: Deed) -> Fault | None:
        """The fault of this kind that is planned for this job."""
        return next((fault for fault in self.faults if fault.do == deed), None)

    def record(self) -> dict[str, Any]:
        """As the API shows it."""
        results = self.results
        names = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelled")
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": "/v1/embeddings",
            "model": self.model,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": None if self.fault("no-output-id") else results.output_file_id,
            "error_file_id": "" if self.fault("empty-error-id") else results.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.created_at + WINDOW_S,
            **{f"{name}_at": self.moments.get(name) for name in names},
            "cancelling_at": self.moments.get("cancelling"),
            "request_counts": {
                "total": results.total,
                "completed": results.completed,
                "failed": results.failed,
            },
            "usage": {"input_tokens": results.tokens, "total_tokens": results.tokens}
            if self.status not in _ACTIVE
            else None,
            "metadata": self.metadata,
        }


class Jobs:
    """All jobs of an account. A job moves on when it is asked about."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._jobs: dict[str, FakeJob] = {}

    def create(self, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
        """Accept a job; whether its file exists and is right shows later.

        Raises:
            ApiError: the request itself is wrong, or there were too many.
        """
        if not isinstance(body, dict) or body.get("endpoint") not in _ENDPOINTS:
            raise ApiError(400, "endpoint must be one of /v1/embeddings", param="endpoint")
        if body.get("completion_window") != "24h" or not isinstance(body.get("input_file_id"), str):
            raise ApiError(400, "completion_window must be 24h", param="completion_window")
        _refuse_metadata(body.get("metadata"))
        account = self._account
        now = int(account.options.now())
        with account.lock:
            recent = sum(job.created_at > now - 3600 for job in self._jobs.values())
            if recent >= account.options.creations_per_hour:
                raise ApiError(429, "too many batches", kind="requests", code="rate_limit_exceeded")
            faults = account.plan.next_of("job")
            job = FakeJob(
                account.new_id("batch_"), body["input_file_id"], body.get("metadata"), now, faults
            )
            self._jobs[job.id] = job
            return job.record()

    def get(self, job_id: str) -> dict[str, Any]:
        """Show a job, after it has moved on as far as it does by being asked about."""
        with self._account.lock:
            job = self._job(job_id)
            job.polls += 1
            polls = self._account.options.polls_per_status
            while job.status in _ACTIVE and job.polls >= polls:
                before = job.status
                self._move(job)
                if job.status == before:
                    break
                job.polls = 0
                if polls:
                    break
            return self._shown(job)

    def list(self, query: dict[str, str]) -> dict[str, Any]:
        """Part of all jobs, newest first."""
        with self._account.lock:
            records = [self._shown(job) for job in reversed(self._jobs.values())]
        return page(records, query, most=100, default=20)

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Begin to cancel a job.

        Raises:
            ApiError: it is finished.
        """
        with self._account.lock:
            job = self._job(job_id)
            if job.status not in _ACTIVE:
                raise ApiError(409, f"Cannot cancel a batch with status '{job.status}'.")
            # A job that is finalizing has its results already.
            if job.status in {"validating", "in_progress"}:
                share = self._account.options.share_done_at_cancel
                self._produce(job, "batch_cancelled", int(job.lines * share))
            self._enter(job, "cancelling")
            return job.record()

    def _job(self, job_id: str) -> FakeJob:
        if job_id not in self._jobs:
            raise ApiError(404, f"No batch found with id '{job_id}'.", param="batch_id")
        return self._jobs[job_id]

    def _shown(self, job: FakeJob) -> dict[str, Any]:
        stay = job.fault("stay")
        record = job.record()
        if stay and stay.value and job.status == "in_progress" and not self._may_leave(job):
            record["status"] = stay.value
        return record

    def _may_leave(self, job: FakeJob) -> bool:
        """Whether a planned standstill is over; a count of 0 means never."""
        stay = job.fault("stay")
        return stay is None or (stay.count > 0 and job.stayed >= stay.count)

    def _move(self, job: FakeJob) -> None:
        stay = job.fault("stay")
        where = "in_progress" if stay is None or stay.value else "finalizing"
        if job.status == where and not self._may_leave(job):
            job.stayed += 1
            return
        match job.status:
            case "validating":
                self._validate(job)
            case "in_progress":
                self._run(job)
            case "finalizing":
                self._enter(job, "completed")
            case "cancelling":
                self._enter(job, "cancelled")

    def _validate(self, job: FakeJob) -> None:
        try:
            self._check(job)
        except JobRefusedError as error:
            job.errors = [error.record]
            self._enter(job, "failed")
        else:
            self._enter(job, "in_progress")

    def _check(self, job: FakeJob) -> None:
        account = self._account
        fail = job.fault("fail")
        if fail:
            raise JobRefusedError(fail.value or "invalid_request", "planned to fail")
        file = account.files.get(job.input_file_id)
        if file is None or file.purpose != "batch":
            raise JobRefusedError("invalid_request", "no such file", param="file_id")
        seen: set[str] = set()
        inputs = 0
        with file.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                body = _checked_line(line, number, seen)
                if job.model not in {None, body["model"]}:
                    raise JobRefusedError(
                        "mismatched_model", "one model only", param="body.model", line=number
                    )
                job.model = body["model"]
                texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
                inputs += len(texts)
                job.tokens += sum(
                    account.options.count_tokens(text) for text in texts if isinstance(text, str)
                )
        job.lines = len(seen)
        if not seen:
            raise JobRefusedError("empty_file", "the file is empty")
        if len(seen) > MOST_LINES or inputs > MOST_INPUTS:
            raise JobRefusedError("too_many_tasks", f"at most {MOST_LINES} requests and inputs")
        self._refuse_full_queue(job)

    def _refuse_full_queue(self, job: FakeJob) -> None:
        limit = self._account.options.enqueued_tokens
        waiting = sum(other.tokens for other in self._jobs.values() if other.status in _ACTIVE)
        if limit is not None and waiting > limit:
            job.tokens = 0
            raise JobRefusedError(
                "token_limit_exceeded", f"Enqueued token limit reached: {waiting} of {limit}"
            )

    def _run(self, job: FakeJob) -> None:
        for deed, status in (("expire", "expired"), ("cancel", "cancelled")):
            fault = next((fault for fault in job.faults if fault.do == deed), None)
            if fault:
                self._produce(job, f"batch_{status}", fault.count)
                self._enter(job, status)
                return
        self._produce(job, "", None)
        self._enter(job, "finalizing")

    def _produce(self, job: FakeJob, rest_code: str, executed: int | None) -> None:
        job.results = write_results(
            self._account,
            job.id,
            job.input_file_id,
            job.faults,
            rest_code=rest_code,
            executed=executed,
        )

    def _enter(self, job: FakeJob, status: str) -> None:
        job.status = status
        job.moments[status] = int(self._account.options.now())


def _checked_line(line: bytes, number: int, seen: set[str]) -> dict[str, Any]:
    for problem in _line_problems(line, number, seen):
        raise problem
    record = orjson.loads(line)
    seen.add(record["custom_id"])
    body: dict[str, Any] = record["body"]
    return body


def _line_problems(line: bytes, number: int, seen: set[str]) -> Iterator[JobRefusedError]:
    try:
        record = orjson.loads(line)
        body = record.get("body") or {}
    except (orjson.JSONDecodeError, AttributeError):
        yield JobRefusedError("invalid_json_line", "not JSON", line=number)
        return
    needed = {
        "custom_id": record.get("custom_id"),
        "method": record.get("method"),
        "body.model": body.get("model"),
        "body.input": body.get("input"),
    }
    for name, value in needed.items():
        if not value:
            yield JobRefusedError(
                "missing_required_parameter", f"missing {name}", param=name, line=number
            )
    if record["custom_id"] in seen:
        yield JobRefusedError(
            "duplicate_custom_id", "custom ids must be unique", param="custom_id", line=number
        )
    if record.get("url") != "/v1/embeddings":
        yield JobRefusedError(
            "invalid_url", "the url is not the job's endpoint", param="url", line=number
        )
    if body["model"].startswith("no-"):
        yield JobRefusedError("model_not_found", "no such model", param="body.model", line=number)


def _refuse_metadata(metadata: object) -> None:
    if metadata is None:
        return
    pairs = metadata.items() if isinstance(metadata, dict) else [("", None)]
    fits = len(pairs) <= 16 and all(
        isinstance(value, str) and 1 <= len(key) <= 64 and len(value) <= 512 for key, value in pairs
    )
    if not fits:
        raise ApiError(400, "metadata takes 16 pairs of 64 and 512 characters", param="metadata")
