"""The fake OpenAI server's result files: executed row by row, in an order of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO, Any

import numpy as np
import orjson

from embedmill.testing.fake_vectors import encoded
from embedmill.testing.openai_account import Account, ApiError, StoredFile
from embedmill.testing.openai_embeddings import checked_request, dimension_of, reply_body
from embedmill.testing.openai_faults import Deed, Fault

_STATUS_OF: dict[Deed, tuple[int, str, str]] = {
    "reject-rows": (400, "invalid_request_error", ""),
    "fail-rows": (500, "server_error", ""),
    "broke-rows": (429, "insufficient_quota", "insufficient_quota"),
}


@dataclass(slots=True)
class Results:
    """What a job has brought so far."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None


@dataclass(slots=True)
class _Doomed:
    """Rows that planned faults still have to happen to."""

    left: dict[Deed, int] = field(default_factory=dict)

    def take(self, deed: Deed) -> bool:
        """Whether it happens to this row."""
        if self.left.get(deed, 0) <= 0:
            return False
        self.left[deed] -= 1
        return True


class _Executor:
    """Executes the lines of one job."""

    def __init__(self, account: Account, job_id: str, faults: list[Fault]) -> None:
        self._account = account
        self._job_id = job_id
        self._doomed = _Doomed({fault.do: fault.count for fault in faults})
        self._as_floats = any(fault.do == "as-floats" for fault in faults)
        self.results = Results()

    def executed(self, request: dict[str, Any]) -> dict[str, Any]:
        """The response to one line, and what it costs."""
        for deed, (status, kind, code) in _STATUS_OF.items():
            if self._doomed.take(deed):
                error = ApiError(status, "planned to fail", kind=kind, code=code or None)
                return self._response(error.status, error.body)
        body = request["body"]
        try:
            texts, counts = checked_request(body, self._account.options)
        except ApiError as error:
            return self._response(error.status, error.body)
        self._account.bill.add(self._job_id, texts, sum(counts))
        self.results.tokens += sum(counts)
        asked = {**body, "encoding_format": "float"} if self._as_floats else body
        reply = reply_body(asked, texts, sum(counts), self._account.options)
        self._spoil(reply["data"], dimension_of(body))
        return self._response(200, reply)

    def _response(self, status: int, body: dict[str, Any]) -> dict[str, Any]:
        if status == 200:
            self.results.completed += 1
        else:
            self.results.failed += 1
        number = self.results.completed + self.results.failed
        return {"status_code": status, "request_id": f"req-{number:08d}", "body": body}

    def _spoil(self, data: list[dict[str, Any]], dimension: int) -> None:
        data.sort(key=lambda item: _order_of(f"{item['index']}".encode()))
        if self._doomed.take("nan-rows"):
            data[0]["embedding"] = _constant(np.nan, dimension)
        if self._doomed.take("null-rows"):
            data[0]["embedding"] = None
        if self._doomed.take("narrow-rows"):
            data[0]["embedding"] = _constant(1.0, 1)
        if self._doomed.take("short-rows"):
            data.pop()

    def lines(self, request: dict[str, Any], response: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What stands in the file for one line; more or less than one row where that is planned."""
        row = {
            "id": f"batch_{response['request_id']}",
            "custom_id": request["custom_id"],
            "response": response,
            "error": None,
        }
        if response["status_code"] == 200 and self._doomed.take("miss-rows"):
            return
        if self._doomed.take("contradict-rows"):
            row["error"] = {"code": "server_error", "message": "planned to be contradictory"}
        if self._doomed.take("null-id-rows"):
            row["custom_id"] = None
        if self._doomed.take("unknown-row"):
            yield {**row, "custom_id": "nobody-sent-this"}
        if response["status_code"] == 200 and self._doomed.take("double-rows"):
            yield row
        yield row

    def takes(self, deed: Deed) -> bool:
        """Whether a fault happens now that concerns no row."""
        return self._doomed.take(deed)


def write_results(
    account: Account,
    job_id: str,
    input_file_id: str,
    faults: list[Fault],
    *,
    rest_code: str = "",
    executed: int | None = None,
) -> Results:
    """Execute a job and write its files. Memory: one line at a time, and where each line begins.

    Args:
        account: has the input file, keeps the results, is charged.
        job_id: of the job.
        input_file_id: of the requests.
        faults: what goes wrong with this job.
        rest_code: of rows that are not executed.
        executed: how many are; None: all.
    """
    executor = _Executor(account, job_id, faults)
    source = account.files.get(input_file_id)
    if source is None:
        return executor.results
    output = account.new_file(f"{job_id}_output.jsonl", "batch_output")
    errors = account.new_file(f"{job_id}_error.jsonl", "batch_output")
    with ExitStack() as stack:
        requests, good, bad = (
            stack.enter_context(file.path.open(mode))
            for file, mode in ((source, "rb"), (output, "wb"), (errors, "wb"))
        )
        places = _places(requests, shuffled=not any(fault.do == "in-order" for fault in faults))
        executor.results.total = len(places)
        for number, place in enumerate(places):
            requests.seek(place)
            request = orjson.loads(requests.readline())
            if executed is not None and number >= executed:
                _write(bad, _not_executed(request, rest_code))
                continue
            response = executor.executed(request)
            for row in executor.lines(request, response):
                _write(good if response["status_code"] == 200 else bad, row)
            _write_junk(good, executor)
    executor.results.output_file_id = _kept(account, output)
    executor.results.error_file_id = _kept(account, errors)
    return executor.results


def _places(requests: IO[bytes], *, shuffled: bool) -> list[int]:
    """Where the lines begin; shuffled, but always the same way."""
    places, at = [], 0
    for line in requests:
        if not line.isspace():
            places.append((_order_of(line) if shuffled else b"", at))
        at += len(line)
    return [at for _, at in sorted(places)]


def _constant(value: float, dimension: int) -> str | list[float]:
    return encoded(np.full(dimension, value, np.float32), as_base64=True)


def _order_of(line: bytes) -> bytes:
    return blake2b(line, digest_size=8).digest()


def _not_executed(request: dict[str, Any], code: str) -> dict[str, Any]:
    message = "This request could not be executed before the batch ended."
    return {
        "id": "batch_req_none",
        "custom_id": request["custom_id"],
        "response": None,
        "error": {"code": code, "message": message},
    }


def _write(file: IO[bytes], row: dict[str, Any]) -> None:
    file.write(orjson.dumps(row) + b"\n")


def _write_junk(file: IO[bytes], executor: _Executor) -> None:
    if executor.takes("malformed-line"):
        file.write(b'{"id": "batch_req_broken", "custom_id": "so\n')
    if executor.takes("blank-line"):
        file.write(b"\n")


def _kept(account: Account, file: StoredFile) -> str | None:
    if not file.size:
        file.path.unlink()
        return None
    account.keep(file)
    return file.id
