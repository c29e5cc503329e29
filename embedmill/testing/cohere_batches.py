"""The fake Cohere server's batches; their results stand in no order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embedmill.cohere_models import COHERE_MODELS
from embedmill.testing.cohere_account import Account, ApiError
from embedmill.testing.cohere_datasets import BATCH_INPUT, CohereDatasets, batch_avro_of, moment
from embedmill.testing.cohere_embeddings import checked_request, reply_body
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fault_plan import planned

_PREFIX = "BATCH_STATUS_"
_MOST, _DEFAULT = 1000, 50
_CREATION = {"name", "input_dataset_id", "model"}


@dataclass(slots=True)
class FakeBatch:
    """One batch."""

    id: str
    body: dict[str, Any]
    created: float
    faults: list[Fault]
    status: str = "QUEUED"
    polls: int = 0
    stayed: int = 0
    tokens: int = 0
    total: int = 0
    failed: int = 0
    done: int = 0
    output_dataset_id: str = ""

    def record(self) -> dict[str, Any]:
        """As the API shows it; 64-bit numbers are texts."""
        stay = planned(self.faults, "stay")
        odd = stay is not None and stay.value and self.status == "IN_PROGRESS"
        return {
            "id": self.id,
            "name": self.body["name"],
            "status": _PREFIX + (stay.value.upper() if stay is not None and odd else self.status),
            "created_at": moment(self.created),
            "updated_at": moment(self.created),
            "input_dataset_id": self.body["input_dataset_id"],
            "output_dataset_id": self.output_dataset_id,
            "model": self.body["model"],
            "num_records": self.total,
            "num_successful_records": self.done,
            "num_failed_records": self.failed,
            "input_tokens": str(self.tokens),
            "output_tokens": "0",
            "status_reason": "planned to fail" if self.status == "FAILED" else "",
        }


class CohereBatches:
    """All batches of an organisation. A batch moves on when it is asked about."""

    def __init__(self, account: Account, datasets: CohereDatasets) -> None:
        self._account = account
        self._datasets = datasets
        self._batches: dict[str, FakeBatch] = {}

    def create(self, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
        """Accept a batch.

        Raises:
            ApiError: a field is missing or unknown, there is no such model, or the dataset is not
                validated or of another kind.
        """
        if not isinstance(body, dict) or body.keys() != _CREATION:
            raise ApiError(400, f"invalid request: a batch has the fields {sorted(_CREATION)}")
        if body["model"] not in COHERE_MODELS:
            raise ApiError(404, f"model '{body['model']}' not found")
        dataset = self._datasets.found(body["input_dataset_id"])
        if dataset.status != "validated" or dataset.kind != BATCH_INPUT:
            raise ApiError(
                400, f"invalid request: dataset {dataset.id} is {dataset.kind}, {dataset.status}"
            )
        account = self._account
        with account.lock:
            batch = FakeBatch(
                f"batch-{len(self._batches) + 1:06d}",
                body,
                account.options.now(),
                account.plan.next_of("job"),
                total=len(dataset.rows),
            )
            self._batches[batch.id] = batch
        return {"batch": batch.record()}

    def listed(self, query: dict[str, str]) -> dict[str, Any]:
        """Part of all batches, newest first."""
        size = min(int(query.get("page_size") or _DEFAULT), _MOST)
        start = int(query.get("page_token") or 0)
        batches = [batch.record() for batch in self._batches.values()][::-1]
        more = start + size < len(batches)
        token = str(start + size) if more else ""
        return {"batches": batches[start : start + size], "next_page_token": token}

    def get(self, batch_id: str) -> dict[str, Any]:
        """Show a batch, after it has moved on."""
        with self._account.lock:
            batch = self._batch(batch_id)
            batch.polls += 1
            if batch.polls >= self._account.options.polls_per_status:
                self._move(batch)
                batch.polls = 0
            return {"batch": batch.record()}

    def cancel(self, batch_id: str) -> dict[str, Any]:
        """Begin to cancel a batch; what it has done, here half of it, is charged for and lost.

        Raises:
            ApiError: it has ended.
        """
        with self._account.lock:
            batch = self._batch(batch_id)
            if batch.status not in {"QUEUED", "IN_PROGRESS", "CANCELING"}:
                raise ApiError(400, f"invalid request: batch {batch_id} is {batch.status}")
            if batch.status == "IN_PROGRESS":
                rows = self._datasets.found(batch.body["input_dataset_id"]).rows
                self._embedded(batch, rows[: len(rows) // 2])
            batch.status = "CANCELING"
        return {}

    def _batch(self, batch_id: str) -> FakeBatch:
        if batch_id not in self._batches:
            raise ApiError(404, f"batch {batch_id} not found")
        return self._batches[batch_id]

    def _move(self, batch: FakeBatch) -> None:
        stay = planned(batch.faults, "stay")
        match batch.status:
            case "QUEUED":
                batch.status = "IN_PROGRESS"
            case "CANCELING":
                batch.status = "CANCELED"
            case "IN_PROGRESS" if stay and (not stay.count or batch.stayed < stay.count):
                batch.stayed += 1
            case "IN_PROGRESS" if planned(batch.faults, "fail"):
                batch.status = "FAILED"
            case "IN_PROGRESS":
                self._complete(batch)
            case _:
                return

    def _complete(self, batch: FakeBatch) -> None:
        rows = self._datasets.found(batch.body["input_dataset_id"]).rows
        counts: dict[str, int] = {fault.do: fault.count for fault in batch.faults}
        said = {"fail-rows": "internal server error", "reject-rows": "invalid request"}
        done = []
        for deed, words in said.items():
            doomed = counts.get(deed, 0)
            done += [_failed(row, words) for row in rows[:doomed]]
            rows = rows[doomed:]
        done += self._embedded(batch, rows)
        batch.failed = sum(row["body"] is None for row in done)
        batch.done = len(done) - batch.failed
        done = _spoiled(done[::-1], counts)
        output = self._datasets.add(f"{batch.id}-output", "batch-embed-v2-output")
        output.status = "validated"
        half = -(-len(done) // 2)
        for some in (done[:half], done[half:]):
            if some:
                output.parts.append((batch_avro_of(some), len(some)))
        batch.output_dataset_id = output.id
        batch.status = "COMPLETED"

    def _embedded(self, batch: FakeBatch, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done = []
        for row in rows:
            body = {**row["body"], "model": batch.body["model"]}
            try:
                asked = checked_request(body, self._account.options)
            except ApiError as error:
                done.append(_failed(row, error.body["message"]))
                continue
            self._account.bill.add(batch.id, asked.texts, asked.tokens)
            batch.tokens += asked.tokens
            reply = reply_body(asked)
            done.append({"custom_id": row["custom_id"], "error": "", "body": reply})
        return done


def _failed(row: dict[str, Any], reason: str) -> dict[str, Any]:
    return {"custom_id": row["custom_id"], "error": reason, "body": None}


def _spoiled(rows: list[dict[str, Any]], doomed: dict[str, int]) -> list[dict[str, Any]]:
    for row in rows[: doomed.get("nan-rows", 0)]:
        row["body"]["embeddings"]["float"][0][0] = float("nan")
    for row in rows[: doomed.get("unknown-row", 0)]:
        rows = [*rows, {**row, "custom_id": "nobody-sent-this"}]
    rows = rows[doomed.get("miss-rows", 0) :]
    return [*rows, *rows[: doomed.get("double-rows", 0)]]
