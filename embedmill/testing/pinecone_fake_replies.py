"""The shapes of the fake Pinecone's errors."""

from __future__ import annotations

from typing import Any

import orjson

from embedmill.testing.fake_api import RefusedRequest, Reply

# Codes of gRPC, which the data plane answers with beside the status.
_CODES = {400: 3, 404: 5, 409: 6, 413: 8, 429: 8, 403: 7, 500: 13, 503: 14}


class ApiError(RefusedRequest):
    """A reply that is an error."""

    def __init__(
        self,
        status: int,
        content: bytes,
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(Reply(status, content, content_type, headers or {}))


def refusal(
    message: str,
    status: int = 400,
    *,
    reason: str = "",
    metadata: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> ApiError:
    """An error of the data plane."""
    details: list[dict[str, Any]] = []
    if reason:
        details.append({"reason": reason, "metadata": metadata or {}})
    body = {"code": _CODES.get(status, 2), "message": message, "details": details}
    return ApiError(status, orjson.dumps(body), headers=headers)


def control_refusal(status: int, code: str, message: str) -> ApiError:
    """An error of the control plane."""
    body = {"status": status, "error": {"code": code, "message": message}}
    return ApiError(status, orjson.dumps(body))


def unauthorized() -> ApiError:
    """The reply to a missing or wrong key: plain text."""
    return ApiError(401, b"Invalid API Key", content_type="text/plain")
