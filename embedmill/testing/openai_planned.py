"""How the fake OpenAI server's planned faults look on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from embedmill.testing.openai_account import ApiError
from embedmill.testing.openai_embeddings import encoded
from embedmill.testing.openai_faults import Fault


def refuse(fault: Fault) -> None:
    """Refuse, where that is what is planned.

    Raises:
        ApiError: as the real server words it.
    """
    error = _errors(fault).get(fault.do)
    if error is not None:
        raise error


def _errors(fault: Fault) -> dict[str, ApiError]:
    status = int(fault.value) if fault.do == "error" and fault.value else 500
    return {
        "rate-limit": ApiError(
            429,
            "Rate limit reached",
            kind="requests",
            code="rate_limit_exceeded",
            headers={fault.header: fault.value} if fault.value else None,
        ),
        "no-money": ApiError(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            kind="insufficient_quota",
            code="insufficient_quota",
        ),
        "bad-key": ApiError(401, "Incorrect API key provided: sk-abc.", code="invalid_api_key"),
        "error": ApiError(status, "The server had an error", kind="server_error"),
        "not-found": ApiError(404, "No such object"),
        "token-limit": ApiError(400, "Enqueued token limit reached", code="token_limit_exceeded"),
    }


def spoiled(record: dict[str, Any], faults: Sequence[Fault]) -> dict[str, Any]:
    """A reply of the embeddings endpoint, as it is planned to be wrong."""
    for fault in faults:
        data = record.get("data")
        if isinstance(data, list) and data:
            _spoil(data, fault)
    return record


def _spoil(data: list[dict[str, Any]], fault: Fault) -> None:
    match fault.do:
        case "shuffled-reply":
            data.reverse()
        case "short-reply":
            data.pop()
        case "empty-reply":
            data.clear()
        case "doubled-index-reply":
            data[-1]["index"] = data[0]["index"]
        case "nan-reply":
            size = len(data[0]["embedding"])
            floats = size * 3 // 4 // 4 if isinstance(data[0]["embedding"], str) else size
            data[0]["embedding"] = encoded(
                np.full(floats, np.nan, np.float32), as_base64=isinstance(data[0]["embedding"], str)
            )
        case "narrow-reply":
            data[0]["embedding"] = encoded(np.ones(1, np.float32), as_base64=True)
        case _:
            return
