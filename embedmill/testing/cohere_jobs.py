"""The fake Cohere server's embed jobs; their results stand in the order of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from embedmill.cohere_models import COHERE_MODELS
from embedmill.testing.cohere_account import Account, ApiError
from embedmill.testing.cohere_datasets import CohereDatasets, avro_of, moment
from embedmill.testing.cohere_embeddings import checked_request, reply_body
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fault_plan import planned

# Rows of one request to the model; of no meaning for the results.
_AT_ONCE = 96


@dataclass(slots=True)
class FakeEmbedJob:
    """One job."""

    id: str
    body: dict[str, Any]
    created: float
    faults: list[Fault]
    status: str = "processing"
    polls: int = 0
    stayed: int = 0
    tokens: int = 0
    output_dataset_id: str | None = None

    def record(self) -> dict[str, Any]:
        """As the API shows it."""
        stay = planned(self.faults, "stay")
        odd = stay is not None and stay.value and self.status == "processing"
        return {
            "job_id": self.id,
            "name": self.body.get("name"),
            "status": stay.value if stay is not None and odd else self.status,
            "created_at": moment(self.created),
            "input_dataset_id": self.body["dataset_id"],
            "output_dataset_id": self.output_dataset_id,
            "model": self.body["model"],
            "truncate": self.body.get("truncate", "START"),
            "meta": {"api_version": {"version": "1"}, "billed_units": {"input_tokens": self.tokens}}
            if self.tokens
            else None,
        }


class CohereJobs:
    """All embed jobs of an organisation. A job moves on when it is asked about."""

    def __init__(self, account: Account, datasets: CohereDatasets) -> None:
        self._account = account
        self._datasets = datasets
        self._jobs: dict[str, FakeEmbedJob] = {}

    def create(self, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
        """Accept a job.

        Raises:
            ApiError: the model has no jobs, or the dataset is not validated.
        """
        if not isinstance(body, dict) or not body.keys() >= {"model", "dataset_id", "input_type"}:
            raise ApiError(400, "invalid request: model, dataset_id and input_type are required")
        model = COHERE_MODELS.get(body["model"])
        if model is None or not model.jobs:
            raise ApiError(400, f"invalid request: model {body['model']} has no embed jobs")
        if body.get("truncate", "START") not in {"START", "END"}:
            raise ApiError(400, "invalid request: truncate must be START or END")
        dataset = self._datasets.found(body["dataset_id"])
        if dataset.status != "validated":
            raise ApiError(400, f"invalid request: dataset {dataset.id} is {dataset.status}")
        account = self._account
        with account.lock:
            job = FakeEmbedJob(
                f"job-{len(self._jobs) + 1:06d}",
                body,
                account.options.now(),
                account.plan.next_of("job"),
            )
            self._jobs[job.id] = job
        return {"job_id": job.id, "meta": {"api_version": {"version": "1"}}}

    def listed(self) -> dict[str, Any]:
        """All jobs: there is neither a filter nor a page."""
        return {"embed_jobs": [job.record() for job in self._jobs.values()]}

    def get(self, job_id: str) -> dict[str, Any]:
        """Show a job, after it has moved on."""
        with self._account.lock:
            job = self._job(job_id)
            job.polls += 1
            if job.polls >= self._account.options.polls_per_status:
                self._move(job)
                job.polls = 0
            return job.record()

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Begin to cancel a job; half of it is done, charged for and lost.

        Raises:
            ApiError: it has ended.
        """
        with self._account.lock:
            job = self._job(job_id)
            if job.status not in {"processing", "cancelling"}:
                raise ApiError(400, f"invalid request: job {job_id} is {job.status}")
            if job.status == "processing":
                rows = self._datasets.found(job.body["dataset_id"]).rows
                self._embedded(job, rows[: len(rows) // 2])
                job.status = "cancelling"
        return {}

    def _job(self, job_id: str) -> FakeEmbedJob:
        if job_id not in self._jobs:
            raise ApiError(404, f"embed job {job_id} not found")
        return self._jobs[job_id]

    def _move(self, job: FakeEmbedJob) -> None:
        if job.status == "cancelling":
            job.status = "cancelled"
        if job.status != "processing":
            return
        stay = planned(job.faults, "stay")
        if stay and (not stay.count or job.stayed < stay.count):
            job.stayed += 1
        elif planned(job.faults, "fail"):
            job.status = "failed"
        else:
            self._complete(job)

    def _complete(self, job: FakeEmbedJob) -> None:
        rows = self._embedded(job, self._datasets.found(job.body["dataset_id"]).rows)
        rows = _spoiled(rows, {fault.do: fault.count for fault in job.faults})
        output = self._datasets.add(f"{job.id}-output", "embed-result")
        output.status = "skipped"
        half = -(-len(rows) // 2)
        for some in (rows[:half], rows[half:]):
            if some:
                output.parts.append((avro_of(some), len(some)))
        job.output_dataset_id = output.id
        job.status = "complete"

    def _embedded(self, job: FakeEmbedJob, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        done = []
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            asked = checked_request(
                {
                    "model": job.body["model"],
                    "input_type": job.body["input_type"],
                    "texts": [row["text"] for row in some],
                    "embedding_types": ["float"],
                    "truncate": job.body.get("truncate", "START"),
                },
                self._account.options,
            )
            self._account.bill.add(job.id, asked.texts, asked.tokens)
            job.tokens += asked.tokens
            vectors = reply_body(asked)["embeddings"]["float"]
            done += [
                {**row, "embeddings": {"float": vector, "int8": None}}
                for row, vector in zip(some, vectors, strict=True)
            ]
        return done


def _spoiled(rows: list[dict[str, Any]], doomed: dict[str, int]) -> list[dict[str, Any]]:
    for row in rows[: doomed.get("nan-rows", 0)]:
        row["embeddings"]["float"][0] = float(np.nan)
    for row in rows[: doomed.get("unknown-row", 0)]:
        rows = [*rows, {**row, "chunk_id": "nobody-sent-this"}]
    rows = rows[doomed.get("miss-rows", 0) :]
    return [*rows, *rows[: doomed.get("double-rows", 0)]]
