"""How the fake OpenAI server's planned faults look on the wire."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from embedmill.testing.openai_account import ApiError
from embedmill.testing.openai_embeddings import encoded
from embedmill.testing.openai_faults import Fault

RawReply = Callable[[int, str, bytes, dict[str, str]], None]
_PAGE = (
    "<html><head><title>502 Bad Gateway</title><style>h1 {color: red}</style></head>"
    "<body><center><h1>502 Bad Gateway</h1></center><hr>cloudflare</body></html>"
)


class DroppedError(Exception):
    """The connection ends without a reply."""


def before_reply(fault: Fault, raw_reply: RawReply) -> None:
    """Do what is planned to happen instead of the work.

    Raises:
        ApiError: an error is to be the reply.
        DroppedError: there is to be none.
    """
    match fault.do:
        case "drop":
            raise DroppedError
        case "slow":
            time.sleep(fault.seconds)
        case "html-502" | "html-200":
            raw_reply(int(fault.do[-3:]), "text/html", _PAGE.encode(), {})
        case _:
            error = _errors().get(fault.do)
            if error is not None:
                _refuse(fault, error)


def after_reply(fault: Fault) -> None:
    """Hang up when the work is done, where that is planned."""
    if fault.do == "drop-reply":
        raise DroppedError


def _errors() -> dict[str, ApiError]:
    limit = ApiError(429, "Rate limit reached", kind="requests", code="rate_limit_exceeded")
    return {
        "rate-limit": limit,
        "no-money": ApiError(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            kind="insufficient_quota",
            code="insufficient_quota",
        ),
        "bad-key": ApiError(401, "Incorrect API key provided: sk-abc.", code="invalid_api_key"),
        "error": ApiError(500, "The server had an error", kind="server_error"),
        "not-found": ApiError(404, "No such object"),
        "token-limit": ApiError(400, "Enqueued token limit reached", code="token_limit_exceeded"),
    }


def _refuse(fault: Fault, error: ApiError) -> None:
    if fault.do == "rate-limit" and fault.value:
        error.headers[fault.header] = fault.value
    if fault.do == "error" and fault.value:
        error.status = int(fault.value)
    raise error


def spoiled(record: dict[str, Any], faults: list[Fault]) -> dict[str, Any]:
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
