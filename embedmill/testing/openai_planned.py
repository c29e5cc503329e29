"""How the fake OpenAI server's planned faults look on the wire."""

from __future__ import annotations

from embedmill.testing.openai_account import ApiError
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
        "too-large": ApiError(400, "File is too large."),
        "token-limit": ApiError(400, "Enqueued token limit reached", code="token_limit_exceeded"),
    }
