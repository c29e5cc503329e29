"""The fake Cohere server's datasets: validated as they are asked about, read in signed parts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import fastavro
import orjson

from embedmill.testing.cohere_account import Account, ApiError
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fake_api import Call, RefusedRequest, Reply, Request
from embedmill.testing.fault_plan import planned
from embedmill.testing.openai_multipart import MultipartReader

MOST_BYTES = 1_500_000_000
_STEPS = ("queued", "processing", "validated")
_VECTOR = ["null", {"type": "array", "items": "float"}]
_SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "chunk_id", "type": ["null", "string"]},
        {
            "name": "embeddings",
            "type": {
                "type": "record",
                "name": "embeddings",
                "fields": [
                    {"name": "float", "type": _VECTOR, "default": None},
                    {"name": "int8", "type": _VECTOR, "default": None},
                ],
            },
        },
    ],
}
_TEXT = ["null", "string"]


def _record(name: str, **fields: object) -> dict[str, object]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


_VECTORS = ["null", {"type": "array", "items": {"type": "array", "items": "float"}}]
_BILLED = _record("billed_units", input_tokens=["null", "double"])
_BATCH_SCHEMA = _record(
    "row",
    custom_id="string",
    error=_TEXT,
    body=[
        "null",
        _record(
            "body",
            id=_TEXT,
            embeddings=_record("embeddings", float=_VECTORS),
            texts=["null", {"type": "array", "items": "string"}],
            meta=_record("meta", billed_units=_BILLED),
        ),
    ],
)
BATCH_INPUT = "batch-embed-v2-input"
# Of a request in a batch: those of a request for vectors, without the model; the length of vectors
# is refused.
_BATCH_FIELDS = {
    "texts",
    "images",
    "inputs",
    "input_type",
    "max_tokens",
    "embedding_types",
    "truncate",
}


def moment(seconds: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class FakeDataset:
    """One dataset.

    Attributes:
        id: of it.
        name: not unique.
        kind: of inputs and results, of jobs and batches.
        created: seconds since the epoch.
        rows: of an input.
        parts: bytes and rows of each part of a result.
        status: of its validation.
        error: why that failed.
        polls: questions about it.
    """

    id: str
    name: str
    kind: str
    created: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    parts: list[tuple[bytes, int]] = field(default_factory=list)
    status: str = "queued"
    error: str | None = None
    polls: int = 0

    def record(self, url: str) -> dict[str, Any]:
        """As the API shows it; the addresses of its parts are signed anew each time."""
        return {
            "id": self.id,
            "name": self.name,
            "created_at": moment(self.created),
            "updated_at": moment(self.created),
            "dataset_type": self.kind,
            "validation_status": self.status,
            "validation_error": self.error,
            "validation_warnings": [],
            "dataset_parts": [
                {
                    "id": f"{self.id}-{at}",
                    "name": f"part-{at}",
                    "url": f"{url}/signed/{self.id}/{at}",
                    "index": at,
                    "size_bytes": len(content),
                    "num_rows": rows,
                }
                for at, (content, rows) in enumerate(self.parts)
            ],
        }


class CohereDatasets:
    """All datasets of an organisation."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._datasets: dict[str, FakeDataset] = {}

    def create(self, request: Request, faults: Sequence[Fault]) -> dict[str, Any]:
        """Keep an upload; what describes it stands in the query.

        Raises:
            ApiError: the description is wrong.
        """
        query = request.parameters
        kind = query.get("type", "")
        if kind not in {"embed-input", BATCH_INPUT}:
            raise ApiError(400, f"invalid request: dataset type {kind}")
        name = query.get("name", "")
        if not 0 < len(name) < 50:
            raise ApiError(400, "invalid request: name must have fewer than 50 characters")
        content = b""
        for part, _, data in MultipartReader(request).parts():
            value = b"".join(data)
            content = value if part == "data" else content
        if len(content) > MOST_BYTES:
            raise ApiError(400, "invalid request: the dataset is larger than 1.5 GB")
        dataset = self.add(name, kind)
        if kind == BATCH_INPUT:
            dataset.rows, dataset.error = _requests(content)
        else:
            dataset.rows, dataset.error = _rows(content, request.query.get("keep_fields", []))
        if refused := planned(faults, "refuse-dataset"):
            dataset.error = refused.value or "planned to fail"
        return {"id": dataset.id}

    def add(self, name: str, kind: str) -> FakeDataset:
        """A new dataset."""
        with self._account.lock:
            dataset_id = f"dataset-{len(self._datasets) + 1:06d}"
            dataset = FakeDataset(dataset_id, name, kind, self._account.options.now())
            self._datasets[dataset_id] = dataset
        return dataset

    def found(self, dataset_id: str) -> FakeDataset:
        """One dataset.

        Raises:
            ApiError: there is none.
        """
        if dataset_id not in self._datasets:
            raise ApiError(404, f"dataset with id {dataset_id} not found")
        return self._datasets[dataset_id]

    def get(self, dataset_id: str, url: str) -> dict[str, Any]:
        """Show a dataset, after its validation has moved on."""
        dataset = self.found(dataset_id)
        with self._account.lock:
            dataset.polls += 1
            if dataset.status in _STEPS[:-1]:
                following = _STEPS[_STEPS.index(dataset.status) + 1]
                refused = following == "validated" and dataset.error
                dataset.status = "failed" if refused else following
        return {"dataset": dataset.record(url)}

    def listed(self, query: dict[str, str], url: str) -> dict[str, Any]:
        """Part of all datasets, newest first."""
        limit, offset = int(query.get("limit", 25)), int(query.get("offset", 0))
        kind = query.get("datasetType")
        chosen = [it for it in reversed(self._datasets.values()) if kind in {None, it.kind}]
        return {"datasets": [it.record(url) for it in chosen[offset : offset + limit]]}

    def part(self, call: Call[Fault]) -> Reply:
        """A part of a result, by its signed address.

        Raises:
            RefusedRequest: the address has expired.
        """
        if call.fault("expired-link"):
            page = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>"
            raise RefusedRequest(Reply(403, page, "application/xml"))
        dataset_id, at = call.names
        content, _ = self.found(dataset_id).parts[int(at)]
        cut = call.fault("cut", "short")
        sent = content[: cut.count] if cut else content
        stated = len(sent) if cut and cut.do == "short" else len(content)
        return Reply(200, sent, "application/octet-stream", stated=stated)


def avro_of(rows: Sequence[dict[str, Any]]) -> bytes:
    """Rows of an embed job's result as a container file, some rows a block."""
    return _container(_SCHEMA, rows)


def batch_avro_of(rows: Sequence[dict[str, Any]]) -> bytes:
    """Rows of a batch's result as a container file, some rows a block."""
    return _container(_BATCH_SCHEMA, rows)


def _container(schema: dict[str, Any], rows: Sequence[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), rows, codec="deflate", sync_interval=2000)
    return out.getvalue()


def _rows(content: bytes, kept: Sequence[str]) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of an input, and what is wrong with them."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            record = orjson.loads(line)
            text = record["text"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return rows, f"line {number} has no text"
        if not isinstance(text, str) or not text:
            return rows, f"line {number}: text is empty"
        rows.append({"text": text, **{name: record.get(name) for name in kept}})
    return rows, None if rows else "the dataset is empty"


def _requests(content: bytes) -> tuple[list[dict[str, Any]], str | None]:
    """The requests of a batch's input, and what is wrong with them."""
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            record = orjson.loads(line)
            name, body = record["custom_id"], record["body"]
            unknown = set(body) - _BATCH_FIELDS | record.keys() - {"custom_id", "body"}
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return [], f"line {number} is no request with custom_id and body"
        if unknown or not isinstance(name, str) or not name or name in rows:
            return [], f"line {number}: unknown field {unknown}, or custom_id {name!r} not unique"
        rows[name] = {"custom_id": name, "body": body}
    return list(rows.values()), None if rows else "the dataset is empty"
