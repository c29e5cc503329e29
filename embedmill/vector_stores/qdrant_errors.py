"""What a Qdrant server's refusals and silences mean for the caller.

Statuses and texts are those of the server's ``StorageError`` and of its HTTP layer, versions 1.13
to 1.20: 400 bad input, strict mode, a body over 32 MiB; 401 and 403 keys; 403 a locked storage; 404
no such collection; 408 its own timeout; 409 it exists; 422 a field that breaks a rule; 429 its rate
limit; 500 anything else, a full disk included (507 in later ones); 503 a shard that is away.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from math import isfinite

import httpx
import orjson
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.vector_stores.server_words import (
    CREDENTIALS_HINT,
    FULL_HINT,
    Effect,
    cleaned,
    unclear,
)

# Nothing was sent: there was no connection to send it over.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_FULL = re.compile(r"no space left|disk (is )?full|out of disk|insufficient storage", re.IGNORECASE)
_READ_ONLY = re.compile(r"read[- ]?only|storage locked", re.IGNORECASE)
# About the collection, not about a record: every other one would be refused alike.
_WHOLE_COLLECTION = re.compile(
    r"vector dimension error|not existing vector name|max[\w ]*(vector|payload|point|memory)[\w ]*"
    r"(limit|reached)",
    re.IGNORECASE,
)


@contextmanager
def server_errors(doing: str, effect: Effect, secret: str = "") -> Iterator[None]:
    """Name what the client raises by what the caller should do next.

    Args:
        doing: what was asked for, for the message.
        effect: of the call.
        secret: the key, which no message may hold.

    Raises:
        PermanentError: a write was refused for what it holds; only for writes.
        RefusedError: something that is not a write was refused; nothing was changed.
        RateLimitedError: the server asks to wait; nothing was changed.
        TransientError: nothing was changed, or it was only a question.
        OutcomeUnknownError: a change may have taken effect.
        StopRunError: the key, its rights, a full or locked disk, a limit of the collection.
    """
    try:
        yield
    except UnexpectedResponse as error:
        words = cleaned(_words_of(error.content or b""), secret)
        raise of_status(error.status_code or 0, words, doing, effect) from error
    except ResourceExhaustedResponse as error:
        message = f"{doing}: {cleaned(str(error), secret)}"
        raise RateLimitedError(message, retry_after=max(0.0, error.retry_after_s)) from error
    except ResponseHandlingException as error:
        raise _of_silence(error.source, doing, effect, secret) from error
    except json.JSONDecodeError as error:
        raise unclear(f"{doing}: the reply is not JSON", "unreadable-reply", effect) from error
    except QdrantException as error:
        # The client knows only whole seconds; the value stands behind the colon.
        wait = stated_wait(str(error).rpartition("integer: ")[2], time.time())
        raise RateLimitedError(f"{doing}: too many requests", retry_after=wait) from error


def of_status(status: int, words: str, doing: str, effect: Effect) -> EmbedmillError:
    """The error that an HTTP status and the server's words amount to."""
    message = f"{doing}: {status}: {words or 'no reason given'}"
    stop = _stop(status, words, message)
    if stop is not None:
        return stop
    if status == 429:
        return RateLimitedError(message)
    if status == 503:
        return TransientError(message, code="unavailable")
    if status >= 500 or status in (408, 425, 499):
        return unclear(message, f"http-{status}", effect)
    return _refusal(status, words, message, effect)


def confirmed(status: str | None, doing: str) -> None:
    """Take a write for done only when the server says so.

    Raises:
        OutcomeUnknownError: the server has it in its log (``acknowledged``), or stopped waiting
            for it (``wait_timeout``): both come with HTTP 200.
    """
    if status != "completed":
        raise OutcomeUnknownError(
            f"{doing}: the server answered {status or 'nothing'}, not completed", code="unconfirmed"
        )


def stated_wait(value: str, now: float) -> float | None:
    """Seconds of a ``Retry-After`` that is not a whole number: a fraction, or a date."""
    try:
        seconds = float(value)
    except ValueError:
        return _until(value, now)
    return max(0.0, seconds) if isfinite(seconds) else None


def _until(value: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _refusal(status: int, words: str, message: str, effect: Effect) -> EmbedmillError:
    if status == 404:
        return RefusedError(message, code="no-collection", hint="check the name, and store.url")
    if effect != "write":
        return RefusedError(message, code=f"http-{status}")
    if _WHOLE_COLLECTION.search(words):
        return StopRunError(
            message,
            code="collection",
            hint="raise the collection's limit, or build a new index version",
        )
    return PermanentError(message, code="refused-by-store")


def _stop(status: int, words: str, message: str) -> StopRunError | None:
    if status == 507 or _FULL.search(words):
        return StopRunError(message, code="disk-full", hint=FULL_HINT)
    if status in (403, 503) and _READ_ONLY.search(words):
        return StopRunError(message, code="read-only", hint="make the server writable again")
    if status in (401, 403, 407):
        return StopRunError(message, code="credentials", hint=CREDENTIALS_HINT)
    return None


def _of_silence(source: Exception, doing: str, effect: Effect, secret: str) -> EmbedmillError:
    name = type(source).__name__
    message = f"{doing}: {cleaned(f'{name}: {source}', secret)}"
    if isinstance(source, httpx.UnsupportedProtocol | httpx.InvalidURL):
        return StopRunError(message, code="store-url", hint="check store.url")
    if isinstance(source, _NOT_SENT):
        return TransientError(message, code="not-sent")
    return unclear(message, "no-reply", effect)


def _words_of(body: bytes) -> str:
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError:
        # The words of a proxy's HTML page, without its styles and tags.
        text = body[:4096].decode("utf-8", "replace")
        text = re.sub(r"(?is)<(style|script)\b.*?</\1>", " ", text)
        return " ".join(re.sub(r"<[^>]*>", " ", text).split())
    status = record.get("status") if isinstance(record, dict) else record
    return str(status.get("error") if isinstance(status, dict) else status or record)
