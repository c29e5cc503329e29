"""What an OpenAI-style error reply means for the caller, whoever made the request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite

import msgspec

from embedmill.batch_provider import FILE_TOO_LARGE, NO_CREDIT, QUEUE_FULL
from embedmill.errors import (
    EmbedmillError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.redaction import redacted
from embedmill.stated_limits import duration

# All mean that waiting does not help. OpenAI's error codes guide, as of November 2026; the SDK
# retries them like rate limits.
NO_MONEY = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
    }
)
# The provider's name of :data:`~embedmill.batch_provider.QUEUE_FULL`.
TOKEN_LIMIT = "token_limit_exceeded"  # noqa: S105, the name of an error
# Code of a rate limit that no waiting helps against: the request alone exceeds it.
TOO_LARGE = "larger-than-the-rate"
_TOO_LARGE = re.compile(r"^request too large|tokens must be reduced", re.IGNORECASE)
# A file that would be taken in parts: OpenAI's words, and such as others may find for the same.
# "Too many requests" alone is a rate limit: smaller files would not pass it.
_FILE_TOO_LARGE = re.compile(
    r"\b(?:file|dataset|upload|body|payload|entity)(?: size)?(?: is| was)? "
    r"(?:too (?:large|big)|larger)"
    r"|\b(?:file|dataset) (?:has|contains) (?:too many|more than [\d.,_]+) "
    r"(?:tasks|lines|inputs|requests|rows|records|texts|items|entries)\b"
    r"|\b(?:file|dataset|upload)(?: size)? (?:exceeds|exceeded)"
    r"|\bmaximum (?:file|dataset|upload|content) size"
    r"|\btoo many (?:tasks|lines|inputs)\b"
    r"|\btoo many requests in (?:\w+ )*(?:file|batch)\b",
    re.IGNORECASE,
)
# What halves would meet as well: others' files count too, or the time.
_NOT_OF_SIZE = re.compile(
    r"\b(?:quota|storage|billing|credits?|budget|spend|balance|rate|timeout|time limit|expir\w+)\b"
    r"|\bper (?:second|minute|hour|day|month)\b|\bin progress\b|\bat (?:a|the same) time\b",
    re.IGNORECASE,
)
# A 400 about one of these is about the settings: every row would fail alike.
_SETTINGS_PARAMS = frozenset({"model", "dimensions", "encoding_format", "user"})
_RETRIED = frozenset({408, 409, 425, 499})
_MESSAGE_LIMIT = 400
# Of a pause, whatever a server says: it can be asked again then.
_LONGEST_PAUSE_S = 86_400.0
# Codes of what is not there, or not any more.
NOT_THERE = frozenset({"not-found", "gone"})


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A reply with a status of 400 or above.

    Attributes:
        status: of HTTP.
        headers: names in lower case.
        body: as it came; JSON, or HTML of a proxy.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """What the body of an error says; empty where it does not.

    Attributes:
        code: or else the type.
        type: kind of error.
        param: of the request that is to blame.
        message: redacted, short.
    """

    code: str = ""
    type: str = ""
    param: str = ""
    message: str = ""

    def unpaid(self, status: int | None = None) -> bool:
        """Whether it says, or the status does, that nobody pays."""
        return status == HTTPStatus.PAYMENT_REQUIRED or not NO_MONEY.isdisjoint(
            {self.code, self.type}
        )


def error_of(reply: ErrorReply, *, doing: str, now: float) -> EmbedmillError:
    """The error that tells the caller what to do next.

    Args:
        reply: of the server.
        doing: what was asked for, for the message.
        now: seconds since the epoch, for waits that are given as a date.

    Returns:
        ``StopRunError`` for keys, money and settings; ``RateLimitedError``; ``TransientError`` for
        what the server may get over; ``RefusedError`` for a thing that is not there;
        ``PermanentError`` for a request that was refused for what it holds.
    """
    detail = detail_of(reply.body)
    status = f"{reply.status} {detail.code}".strip()
    message = f"{doing}: {status}: {detail.message or _phrase(reply.status)}"
    stop = _stop(reply.status, detail, message)
    if stop is not None:
        return stop
    if TOKEN_LIMIT in {detail.code, detail.type}:
        return TransientError(message, code=QUEUE_FULL)
    if reply.status == 429:
        code = TOO_LARGE if _TOO_LARGE.search(detail.message) else ""
        wait = retry_after(reply, detail.message, now)
        return RateLimitedError(message, retry_after=wait, code=code)
    if reply.status >= 500 or reply.status in _RETRIED:
        return TransientError(message, code=f"http-{reply.status}")
    if reply.status in {404, 410}:
        return RefusedError(message, code="not-found" if reply.status == 404 else "gone")
    return PermanentError(message, code=detail.code or f"http-{reply.status}")


def job_error_of(reply: ErrorReply, *, doing: str, now: float) -> EmbedmillError:
    """The same for calls about jobs and files, where it is never one row that was refused.

    Args:
        reply: of the server.
        doing: what was asked for, for the message.
        now: seconds since the epoch.

    Returns:
        As :func:`error_of`, but ``RefusedError`` for ``PermanentError``; a file that is too large
        (413, or a 400 that says so) has the code
        :data:`~embedmill.batch_provider.FILE_TOO_LARGE`.
    """
    meaning = error_of(reply, doing=doing, now=now)
    if not isinstance(meaning, PermanentError):
        return meaning
    large = reply.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    large = large or tells_of_size(detail_of(reply.body).message)
    return RefusedError(str(meaning), code=FILE_TOO_LARGE if large else meaning.code)


def tells_of_size(message: str) -> bool:
    """Whether a provider says of a file of requests that it is too large, or has too many."""
    return bool(_FILE_TOO_LARGE.search(message)) and not _NOT_OF_SIZE.search(message)


def _stop(status: int, detail: ErrorDetail, message: str) -> StopRunError | None:
    if detail.unpaid(status):
        return StopRunError(
            message,
            code=NO_CREDIT,
            hint="add credit or raise the limit, then run the same command again: what was paid "
            "for is kept",
        )
    # 498 is Cohere's word for a key that is not valid.
    if status in {401, 403, 498}:
        return StopRunError(
            message, code="credentials", hint="check the key, its project and its rights"
        )
    if detail.code == "model_not_found" or (
        status in {400, 422} and detail.param in _SETTINGS_PARAMS
    ):
        return StopRunError(message, code="embedder-settings", hint="check the embedder's settings")
    return None


def detail_of(body: bytes) -> ErrorDetail:
    """Read the body of an error, whatever it is."""
    try:
        record = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorDetail(message=_plain(body))
    return detail_of_record(record)


def detail_of_record(record: object) -> ErrorDetail:
    """Read a decoded error: ``{"error": {...}}``, ``{"error": "..."}`` or ``{"detail": "..."}``."""
    if not isinstance(record, dict):
        return ErrorDetail(message=_short(str(record)))
    error = record.get("error", record.get("detail", record))
    if not isinstance(error, dict):
        return ErrorDetail(message=_short(str(error)))
    kind = str(error.get("type") or "")
    return ErrorDetail(
        code=str(error.get("code") or kind),
        type=kind,
        param=str(error.get("param") or ""),
        message=_short(str(error.get("message") or "")),
    )


def retry_after(reply: ErrorReply, message: str, now: float) -> float | None:
    """Seconds that a 429 asks to wait; None when it does not say, or says nonsense.

    A day at most: the server can be asked again then. In this order: ``retry-after-ms``;
    ``retry-after`` in seconds or as a date; the reset of whichever limit has nothing left
    (``x-ratelimit-reset-requests: 6m0s``); the message ("try again in 1.2s").
    """
    headers = reply.headers
    stated = _number(headers.get("retry-after-ms"), 0.001)
    if stated is None:
        stated = _number(headers.get("retry-after"), 1.0)
    if stated is None:
        stated = _until(headers.get("retry-after"), now)
    if stated is None:
        resets = [
            duration(headers.get(f"x-ratelimit-reset-{what}", ""))
            for what in ("requests", "tokens")
            if headers.get(f"x-ratelimit-remaining-{what}") == "0"
        ]
        stated = max((seconds for seconds in resets if seconds is not None), default=None)
    if stated is None:
        stated = duration(message.partition("try again in ")[2].split(" ")[0])
    return None if stated is None else min(stated, _LONGEST_PAUSE_S)


def _number(value: str | None, unit: float) -> float | None:
    try:
        seconds = float(value) * unit if value else None
    except ValueError:
        return None
    return max(0.0, seconds) if seconds is not None and isfinite(seconds) else None


def _until(value: str | None, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now) if value else None
    except (ValueError, OverflowError):
        return None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _plain(body: bytes) -> str:
    # The words of an HTML page, without its styles and tags.
    text = body[:4096].decode("utf-8", "replace")
    text = re.sub(r"(?is)<(style|script)\b.*?</\1>", " ", text)
    return _short(" ".join(re.sub(r"<[^>]*>", " ", text).split()))


def _short(message: str) -> str:
    message = redacted(message)
    return message if len(message) <= _MESSAGE_LIMIT else f"{message[:_MESSAGE_LIMIT]}..."
