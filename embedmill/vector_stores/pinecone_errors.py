"""What Pinecone and the way to it say, as errors by consequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

import httpx
from pinecone.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    PaymentRequiredError,
    PineconeConnectionError,
    PineconeError,
    PineconeTimeoutError,
    RateLimitError,
    ResponseParsingError,
    ServiceError,
    UnauthorizedError,
)

from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.redaction import redacted

# read: nothing changes; write: repeating is safe, but it may have happened; records: a write whose
# refusal may be about one of its records.
Call: TypeAlias = Literal["read", "write", "records"]
_LONGEST = 300
# The phrase in which a plan's monthly units are used up; Pinecone sends it as a 429.
_MONTHLY = "for the current month"


class AbsentError(RefusedError):
    """What the call spoke of is not there."""

    code = "no-collection"


@contextmanager
def pinecone_errors(call: Call, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Name what the SDK raises by what the caller should do next.

    Args:
        call: what is done.
        secrets: never repeated, whatever a server says.

    Raises:
        StopRunError: credentials, plan or money: no call can succeed.
        RateLimitedError: too fast.
        TransientError: nothing happened.
        OutcomeUnknownError: a write may have happened.
        PermanentError: of ``records``, the server refused the request for what is in it.
        AbsentError: the namespace, alias or index is not there.
        RefusedError: the server refused anything else.
    """
    try:
        yield
    except PineconeError as error:
        raise _named(error, call, _words(error, secrets)) from error


def reasons(error: BaseException | None) -> set[str]:
    """Machine-readable reasons that the server gave (``ALIAS_ALREADY_EXISTS``)."""
    body = error.body if isinstance(error, ApiError) else None
    details = body.get("details") if isinstance(body, dict) else None
    entries = details if isinstance(details, list) else []
    return {str(entry.get("reason")) for entry in entries if isinstance(entry, dict)}


def _named(error: PineconeError, call: Call, words: str) -> EmbedmillError:
    if isinstance(error, ApiError):
        return _answered(error, call, words)
    if isinstance(error, PineconeTimeoutError | PineconeConnectionError):
        if call == "read" or isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
            return TransientError(f"no reply from Pinecone: {words}", code="connection")
        return _unknown(words)
    if isinstance(error, ResponseParsingError):
        if call == "read":
            return TransientError(f"a reply of Pinecone cannot be read: {words}", code="reply")
        return _unknown(words)
    # What the SDK finds wrong before it sends anything.
    refusal = PermanentError if call == "records" else RefusedError
    return refusal(f"Pinecone's client says {words}", code="refused-by-store")


def _answered(error: ApiError, call: Call, words: str) -> EmbedmillError:
    said = f"Pinecone says {words}"
    if isinstance(error, UnauthorizedError | ForbiddenError | PaymentRequiredError):
        return _stopped(error, said)
    if isinstance(error, RateLimitError):
        if _MONTHLY in words:
            return _stopped(error, said)
        return RateLimitedError(said, retry_after=error.retry_after)
    if isinstance(error, ServiceError) or error.status_code == 408:
        # 503: not taken on. Of the others nobody knows how far they came.
        nothing_done = call == "read" or error.status_code == 503
        return TransientError(said, code="server") if nothing_done else _unknown(said)
    return _refused(error, call, said)


def _refused(error: ApiError, call: Call, said: str) -> EmbedmillError:
    if call == "records" and error.status_code in {400, 413}:
        return PermanentError(said, code="refused-by-store")
    if isinstance(error, NotFoundError):
        return AbsentError(said)
    return RefusedError(said, code="refused-by-store")


def _stopped(error: ApiError, said: str) -> StopRunError:
    if isinstance(error, UnauthorizedError):
        return StopRunError(said, code="credentials", hint="check the API key of the store")
    if "quota" in said.lower() or not isinstance(error, ForbiddenError):
        hint = "free some room, or raise the plan of the Pinecone project; then run again"
        return StopRunError(said, code="quota", hint=hint)
    hint = "the API key needs the roles ControlPlaneEditor and DataPlaneEditor"
    return StopRunError(said, code="credentials", hint=hint)


def _unknown(words: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"whether Pinecone has done it is not known: {words}", code="outcome-unknown"
    )


def _words(error: PineconeError, secrets: Sequence[str]) -> str:
    text = redacted(" ".join(str(error).split()))
    for secret in secrets:
        text = text.replace(secret, "***")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
