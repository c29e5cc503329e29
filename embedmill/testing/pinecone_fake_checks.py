"""What Pinecone refuses in an upsert; the request is taken or refused as a whole.

Limits are those of its documentation (operation limits, identifier limits), as of November 2026;
where a refusal of the real service is known by its words, it has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from embedmill.testing.pinecone_fake_index import FakeIndex, Stored
from embedmill.testing.pinecone_fake_replies import refusal

MAX_RECORDS = 1000
MAX_REQUEST_BYTES = 2 * 2**20
MAX_METADATA_BYTES = 40_960
MAX_ID = 512
MAX_IDS = 1000


def stored_records(index: FakeIndex, body: Any) -> dict[str, Stored]:  # noqa: ANN401 (what came)
    """Records of an upsert by id.

    Raises:
        ApiError: something in it is not right.
    """
    vectors = body.get("vectors") if isinstance(body, dict) else None
    if not isinstance(vectors, list) or not vectors:
        raise refusal("At least one vector is required")
    if len(vectors) > MAX_RECORDS:
        raise refusal(f"Batch size of {len(vectors)} exceeds the limit of {MAX_RECORDS}")
    records: dict[str, Stored] = {}
    for vector in vectors:
        if not isinstance(vector, dict):
            raise refusal("Every vector must be an object")
        record = check_id(vector.get("id"))
        if record in records:
            raise refusal(f"Found duplicate vector ID '{record}' in one request")
        values = _values(index, record, vector.get("values"))
        records[record] = Stored(values, kept_metadata(vector.get("metadata") or {}))
    return records


def check_id(record: object) -> str:
    """An id as it may be.

    Raises:
        ApiError: it may not.
    """
    if not isinstance(record, str) or not record:
        raise refusal("Vector IDs must be non-empty strings")
    if not record.isascii() or "\0" in record:
        raise refusal(f"Vector ID must be ASCII, but got '{record}'")
    if len(record) > MAX_ID:
        raise refusal(f"Found vector IDs longer than the max supported length of {MAX_ID}")
    return record


def checked_ids(ids: object) -> list[str]:
    """Ids of a fetch or delete.

    Raises:
        ApiError: they are none, or too many.
    """
    if not isinstance(ids, list) or not ids:
        raise refusal("At least one ID is required")
    if len(ids) > MAX_IDS:
        raise refusal(f"{len(ids)} IDs in one request exceed the limit of {MAX_IDS}")
    return [check_id(record) for record in ids]


def checked_vector(index: FakeIndex, values: object, *, what: str) -> np.ndarray[Any, Any]:
    """Components as float32.

    Raises:
        ApiError: they are no vector of this index.
    """
    if not isinstance(values, list) or not all(type(one) in {int, float} for one in values):
        raise refusal(f"{what} must be an array of numbers; null is no number")
    if len(values) != index.dimension:
        raise refusal(
            f"Vector dimension {len(values)} does not match the dimension of the index "
            f"{index.dimension}"
        )
    return np.array(values, dtype=np.float32)


def _values(index: FakeIndex, record: str, values: object) -> np.ndarray[Any, Any]:
    vector = checked_vector(index, values, what=f"The values of vector ID '{record}'")
    if not vector.any():
        raise refusal(
            "Dense vectors must contain at least one non-zero value. "
            f"Vector ID '{record}' contains only zeros."
        )
    return vector


def kept_metadata(metadata: object) -> dict[str, Any]:
    """Metadata as it is kept: all numbers are float64.

    Raises:
        ApiError: it may not be so, or is too large.
    """
    if not isinstance(metadata, dict):
        raise refusal("Metadata must be an object")
    for key, value in metadata.items():
        if key.startswith("$"):
            raise refusal(f"Metadata keys cannot start with $: '{key}'")
        if not _allowed(value):
            raise refusal(
                "Metadata value must be a string, number, boolean or list of strings, got "
                f"'{orjson.dumps(value).decode()[:80]}' for field '{key}'"
            )
    size = len(orjson.dumps(metadata))
    if size > MAX_METADATA_BYTES:
        raise refusal(
            f"Metadata size is {size} bytes, which exceeds the limit of {MAX_METADATA_BYTES} bytes "
            "per vector"
        )
    return {key: _as_kept(value) for key, value in metadata.items()}


def _allowed(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return isinstance(value, str | int | float)


def _as_kept(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if number and isinstance(value, int) else value


def found(records: Sequence[tuple[str, Stored]]) -> dict[str, Any]:
    """Records as a fetch gives them."""
    return {
        record: {"id": record, "values": stored.values.tolist(), "metadata": dict(stored.metadata)}
        for record, stored in records
    }
