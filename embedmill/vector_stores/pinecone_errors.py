"""What Pinecone and the way to it say, as errors by consequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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
from embedmill.vector_stores.server_words import CREDENTIALS_HINT, Effect, cleaned

# The phrase in which a plan's monthly units are used up; Pinecone sends it as a 429.
_MONTHLY = "for the current month"


class AbsentError(RefusedError):
    """What the call spoke of is not there."""

    code = "no-collection"


@contextmanager
def pinecone_errors(effect: Effect, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Name what the SDK raises by what the caller should do next.

    Args:
        effect: of the call.
        secrets: never repeated, whatever a server says.

    Raises:
        StopRunError: credentials, plan or money: no call can succeed.
        RateLimitedError: too fast.
        TransientError: nothing happened.
        OutcomeUnknownError: a change may have taken effect.
        PermanentError: a write was refused for what it holds; only for writes.
        AbsentError: the namespace, alias or index is not there.
        RefusedError: the server refused anything else.
    """
    try:
        yield
    except PineconeError as error:
        raise _named(error, effect, cleaned(str(error), *secrets)) from error


def reasons(error: BaseException | None) -> set[str]:
    """Machine-readable reasons that the server gave (``ALIAS_ALREADY_EXISTS``)."""
    body = error.body if isinstance(error, ApiError) else None
    details = body.get("details") if isinstance(body, dict) else None
    entries = details if isinstance(details, list) else []
    return {str(entry.get("reason")) for entry in entries if isinstance(entry, dict)}


def _named(error: PineconeError, effect: Effect, words: str) -> EmbedmillError:
    if isinstance(error, ApiError):
        return _answered(error, effect, words)
    if isinstance(error, PineconeTimeoutError | PineconeConnectionError):
        if effect == "read" or isinstance(
            error.__cause__, httpx.ConnectError | httpx.ConnectTimeout
        ):
            return TransientError(f"no reply from Pinecone: {words}", code="connection")
        return _unknown(words)
    if isinstance(error, ResponseParsingError):
        if effect == "read":
            return TransientError(f"a reply of Pinecone cannot be read: {words}", code="reply")
        return _unknown(words)
    # What the SDK finds wrong before it sends anything.
    refusal = PermanentError if effect == "write" else RefusedError
    return refusal(f"Pinecone's client says {words}", code="refused-by-store")


def _answered(error: ApiError, effect: Effect, words: str) -> EmbedmillError:
    said = f"Pinecone says {words}"
    if isinstance(error, UnauthorizedError | ForbiddenError | PaymentRequiredError):
        return _stopped(error, said)
    if isinstance(error, RateLimitError):
        if _MONTHLY in words:
            return _stopped(error, said)
        return RateLimitedError(said, retry_after=error.retry_after)
    if isinstance(error, ServiceError) or error.status_code == 408:
        # 503: not taken on. Of the others nobody knows how far they came.
        nothing_done = effect == "read" or error.status_code == 503
        return TransientError(said, code="server") if nothing_done else _unknown(said)
    return _refused(error, effect, said)


def _refused(error: ApiError, effect: Effect, said: str) -> EmbedmillError:
    if effect == "write" and error.status_code in {400, 413}:
        return PermanentError(said, code="refused-by-store")
    if isinstance(error, NotFoundError):
        return AbsentError(said)
    return RefusedError(said, code="refused-by-store")


def _stopped(error: ApiError, said: str) -> StopRunError:
    if isinstance(error, UnauthorizedError):
        return StopRunError(said, code="credentials", hint=CREDENTIALS_HINT)
    if "quota" in said.lower() or not isinstance(error, ForbiddenError):
        hint = "free some room, or raise the plan of the Pinecone project; then run again"
        return StopRunError(said, code="quota", hint=hint)
    hint = "the API key needs the roles ControlPlaneEditor and DataPlaneEditor"
    return StopRunError(said, code="credentials", hint=hint)


def _unknown(words: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"whether Pinecone has done it is not known: {words}", code="outcome-unknown"
    )
