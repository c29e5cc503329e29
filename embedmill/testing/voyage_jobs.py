"""The fake Voyage server's jobs: from creation to one of their ends. There is no ``expired``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from embedmill.testing.fault_plan import planned
from embedmill.testing.voyage_account import Account, ApiError
from embedmill.testing.voyage_embeddings import checked_request, reply_body
from embedmill.testing.voyage_faults import Fault
from embedmill.testing.voyage_files import VoyageFiles, moment, page

MOST_INPUTS = 100_000
_ACTIVE = ("validating", "in_progress", "finalizing", "cancelling")
_PARAMETERS = {"model", "input_type", "output_dimension", "output_dtype", "truncation"}
_TIMES = ("in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled")


@dataclass(slots=True)
class VoyageJob:
    """One job."""

    id: str
    body: dict[str, Any]
    created: float
    faults: list[Fault]
    status: str = "validating"
    polls: int = 0
    stayed: int = 0
    tokens: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: {"total": 0, "completed": 0, "failed": 0}
    )
    output_file_id: str | None = None
    error_file_id: str | None = None

    def record(self) -> dict[str, Any]:
        """As the API shows it."""
        stay = planned(self.faults, "stay")
        odd = stay is not None and stay.value and self.status == "in_progress"
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": "/v1/embeddings",
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": self.body["input_file_id"],
            "completion_window": "12h",
            "model": self.body["request_params"]["model"],
            "status": stay.value if stay is not None and odd else self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "request_counts": self.counts,
            "metadata": self.body.get("metadata"),
            "created_at": moment(self.created),
            "expected_completion_at": moment(self.created + 12 * 3600),
            **{
                f"{name}_at": moment(self.moments[name]) if name in self.moments else None
                for name in _TIMES
            },
        }


class VoyageJobs:
    """All jobs of an organisation. A job moves on when it is asked about."""

    def __init__(self, account: Account, files: VoyageFiles) -> None:
        self._account = account
        self._files = files
        self._jobs: dict[str, VoyageJob] = {}

    def create(self, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
        """Accept a job.

        Raises:
            ApiError: the request is wrong, its file is not there, or there is too much under way.
        """
        account = self._account
        _refuse_creation(body)
        with account.lock:
            try:
                file = self._files.get(body["input_file_id"])
            except ApiError as error:
                raise ApiError(404, "Input file not found") from error
            tokens = _tokens_of(file.content, account)
            under_way = [job for job in self._jobs.values() if job.status in _ACTIVE]
            waiting = sum(job.tokens for job in under_way) + tokens
            if (
                len(under_way) >= account.options.jobs_at_a_time
                or waiting > account.options.enqueued_tokens
            ):
                raise ApiError(429, "Too many batch jobs or tokens are in progress.")
            job = VoyageJob(
                f"batch-{len(self._jobs) + 1:08d}",
                body,
                account.options.now(),
                account.plan.next_of("job"),
                tokens=tokens,
            )
            self._jobs[job.id] = job
            return job.record()

    def get(self, job_id: str) -> dict[str, Any]:
        """Show a job, after it has moved on as far as it does by being asked about."""
        with self._account.lock:
            job = self._job(job_id)
            job.polls += 1
            if job.status in _ACTIVE and job.polls >= self._account.options.polls_per_status:
                self._move(job)
                job.polls = 0
            return job.record()

    def listed(self, query: dict[str, str]) -> dict[str, Any]:
        """Part of all jobs, newest first."""
        with self._account.lock:
            records = [job.record() for job in reversed(self._jobs.values())]
        return page(records, query, most=100, default=20)

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Begin to cancel a job; what it has done is kept, and charged for.

        Raises:
            ApiError: it has ended.
        """
        with self._account.lock:
            job = self._job(job_id)
            if job.status not in _ACTIVE:
                raise ApiError(400, f"Batch {job_id} is {job.status}")
            if job.status == "in_progress":
                self._execute(job, len(job.lines) // 2, "batch_cancelled")
            if job.status != "cancelling":
                self._enter(job, "cancelling")
            return job.record()

    def _job(self, job_id: str) -> VoyageJob:
        if job_id not in self._jobs:
            raise ApiError(404, f"Batch {job_id} not found")
        return self._jobs[job_id]

    def _move(self, job: VoyageJob) -> None:
        stay = planned(job.faults, "stay")
        if job.status == "in_progress" and stay and (not stay.count or job.stayed < stay.count):
            job.stayed += 1
            return
        match job.status:
            case "validating":
                self._validate(job)
            case "in_progress":
                expire = planned(job.faults, "expire")
                self._execute(job, expire.count if expire else None, "batch_expired")
                self._enter(job, "finalizing")
            case "finalizing":
                self._enter(job, "completed")
            case "cancelling":
                self._enter(job, "cancelled")

    def _validate(self, job: VoyageJob) -> None:
        try:
            _refuse_as_planned(job)
            job.lines = _checked(self._files.get(job.body["input_file_id"]).content)
        except ApiError as error:
            said = {"code": "invalid_request", "message": error.body["detail"], "line": None}
            job.errors = [said]
            job.tokens = 0
            self._enter(job, "failed")
        else:
            job.counts["total"] = len(job.lines)
            self._enter(job, "in_progress")

    def _execute(self, job: VoyageJob, executed: int | None, rest: str) -> None:
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        doomed: dict[str, int] = {fault.do: fault.count for fault in job.faults}
        lines = sorted(job.lines, key=lambda line: _order_of(line["custom_id"]))
        for number, line in enumerate(lines):
            if executed is not None and number >= executed:
                bad.append(_row(job, line, None, {"code": rest, "message": "not executed"}))
                continue
            response = self._response(job, line, doomed)
            rows = good if response["status_code"] == 200 else bad
            job.counts["completed" if rows is good else "failed"] += 1
            rows += _spoiled(_row(job, line, response, None), doomed)
        job.output_file_id = self._kept(f"{job.id}_output.jsonl", "batch-output", good)
        job.error_file_id = self._kept(f"{job.id}_error.jsonl", "batch-error", bad)

    def _response(
        self, job: VoyageJob, line: dict[str, Any], doomed: dict[str, int]
    ) -> dict[str, Any]:
        for deed, status in (("reject-rows", 400), ("fail-rows", 500), ("broke-rows", 402)):
            if _take(doomed, deed):
                return {"status_code": status, "message": "planned to fail"}
        try:
            asked = checked_request(
                {**job.body["request_params"], **line["body"]}, self._account.options
            )
        except ApiError as error:
            return {"status_code": error.status, "message": error.body["detail"]}
        self._account.bill.add(job.id, line["body"]["input"], asked.tokens)
        body = reply_body(asked)
        if _take(doomed, "nan-rows"):
            body["data"][0]["embedding"][0] = None
        body["data"].sort(key=lambda item: _order_of(str(item["index"])))
        return {"status_code": 200, "body": body}

    def _kept(self, name: str, purpose: str, rows: list[dict[str, Any]]) -> str | None:
        if not rows:
            return None
        content = b"".join(orjson.dumps(row) + b"\n" for row in rows)
        return self._files.add(name, purpose, content).id

    def _enter(self, job: VoyageJob, status: str) -> None:
        job.status = status
        job.moments[status] = self._account.options.now()


def _refuse_as_planned(job: VoyageJob) -> None:
    fail = planned(job.faults, "fail")
    if fail:
        raise ApiError(400, fail.value or "planned to fail")


def _refuse_creation(body: Any) -> None:  # noqa: ANN401, what came over the wire
    if not isinstance(body, dict) or body.get("endpoint") != "/v1/embeddings":
        raise ApiError(400, "endpoint must be /v1/embeddings")
    if body.get("completion_window") != "12h":
        raise ApiError(400, "completion_window must be 12h")
    parameters = body.get("request_params")
    if not isinstance(parameters, dict) or "model" not in parameters:
        raise ApiError(422, "request_params.model is required")
    if unknown := parameters.keys() - _PARAMETERS:
        raise ApiError(422, f"request_params: '{min(unknown)}' is not supported")
    for key, value in (body.get("metadata") or {}).items():
        if len(key) > 64 or len(str(value)) > 512:
            raise ApiError(422, "metadata takes keys of 64 and values of 512 characters")


def _checked(content: bytes) -> list[dict[str, Any]]:
    lines = []
    seen: set[str] = set()
    inputs = 0
    for number, text in enumerate(content.splitlines(), start=1):
        try:
            line = orjson.loads(text)
            custom_id, texts = line["custom_id"], line["body"]["input"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ApiError(400, f"line {number} is no request") from error
        if line.keys() != {"custom_id", "body"} or line["body"].keys() != {"input"}:
            raise ApiError(400, f"line {number} has fields that a batch request has not")
        if custom_id in seen:
            raise ApiError(400, f"line {number}: custom_id {custom_id} is used twice")
        seen.add(custom_id)
        inputs += len(texts)
        lines.append(line)
    if inputs > MOST_INPUTS:
        raise ApiError(400, f"{inputs} inputs; the maximum is {MOST_INPUTS}")
    return lines


def _tokens_of(content: bytes, account: Account) -> int:
    try:
        lines = [orjson.loads(text)["body"]["input"] for text in content.splitlines()]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return 0
    return sum(account.options.count_tokens(text) for texts in lines for text in texts)


def _row(
    job: VoyageJob, line: dict[str, Any], response: dict[str, Any] | None, error: object
) -> dict[str, Any]:
    return {
        "batch_id": job.id,
        "custom_id": line["custom_id"],
        "response": response,
        "error": error,
    }


def _spoiled(row: dict[str, Any], doomed: dict[str, int]) -> Iterator[dict[str, Any]]:
    if _take(doomed, "miss-rows"):
        return
    if _take(doomed, "unknown-row"):
        yield {**row, "custom_id": "nobody-sent-this"}
    if _take(doomed, "double-rows"):
        yield row
    yield row


def _take(doomed: dict[str, int], deed: str) -> bool:
    if doomed.get(deed, 0) <= 0:
        return False
    doomed[deed] -= 1
    return True


def _order_of(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()
