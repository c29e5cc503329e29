"""What Weaviate's refusals and silences mean for the caller.

Its gRPC interface gives most errors the status UNKNOWN, so that their words decide; objects of a
batch are refused one by one, in a reply that is otherwise a success.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import httpx
from weaviate.exceptions import (
    AuthenticationFailedError,
    ResponseCannotBeDecodedError,
    UnexpectedStatusCodeError,
    WeaviateBaseError,
    WeaviateConnectionError,
    WeaviateInvalidInputError,
)

from embedmill.errors import (
    EmbedmillError,
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

_AWAY_HINT = "is the server running? check store.url and store.grpc_url"
# What nothing but a person can change: words, code, what to do.
_STOPS = (
    (re.compile(r"no space left|disk (is )?full", re.IGNORECASE), "disk-full", FULL_HINT),
    (
        re.compile(r"read[- ]?only", re.IGNORECASE),
        "read-only",
        "see the server's log and disk, then set its shards to READY again",
    ),
    (
        re.compile(
            r"unauthori[sz]ed|unauthenticated|forbidden|anonymous access|invalid api key"
            r"|extract auth|insufficient permissions",
            re.IGNORECASE,
        ),
        "credentials",
        CREDENTIALS_HINT,
    ),
    # About the collection, not about a record: every other one would be refused alike.
    (
        re.compile(
            r"vector lengths? (don't|do not) match|vector with length|inconsistent vector length",
            re.IGNORECASE,
        ),
        "collection",
        "build a new index version",
    ),
)
_ABSENT = re.compile(r"could not find class|class .{0,260}not found|no such class", re.IGNORECASE)
# A copy is away, a leader is being chosen, memory is short: the same call may succeed later.
_PASSING = re.compile(
    r"deadline exceeded|context canceled|time(d)? ?out|connection (refused|reset)|unavailable"
    r"|enough replicas|no leader|leader not found|leadership|(enough|out of) memory|shutting down"
    r"|shard is (not ready|loading)",
    re.IGNORECASE,
)
# It becomes active by itself, unless somebody has told its collection that it should not.
_INACTIVE = re.compile(r"tenant not active", re.IGNORECASE)
_INACTIVE_HINT = "set the tenant ACTIVE, or autoTenantActivation of its collection to true"
_TOO_LARGE = re.compile(r"message larger than max|larger than max|too large", re.IGNORECASE)
_NOT_SENT = re.compile(r"failed to connect|connection refused|name resolution", re.IGNORECASE)
_CREDENTIALS_CODES = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_RATE = re.compile(r"too many requests|rate limit|429", re.IGNORECASE)


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
        StopRunError: the key, its rights, a full or locked disk, vectors of another length.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise _of_call(error, doing, effect, secret) from error
    except UnexpectedStatusCodeError as error:
        raise _of_status(error, doing, effect, secret) from error
    except (WeaviateBaseError, httpx.HTTPError) as error:
        raise _of_client(error, doing, effect, secret) from error
    except (KeyError, ValueError, AttributeError, AssertionError) as error:
        # What the client raises when a reply is not what it knows how to read.
        words = f"{doing}: the reply cannot be read ({type(error).__name__})"
        raise unclear(words, "unreadable-reply", effect) from error


def of_object(words: str, doing: str) -> EmbedmillError:
    """The error that a refused object of a batch amounts to."""
    return of_words(words, f"{doing}: {words}", "write") or PermanentError(
        f"{doing}: {words}", code="refused-by-store"
    )


def of_words(words: str, message: str, effect: Effect) -> EmbedmillError | None:
    """The error that the server's words alone amount to; None when they say nothing known."""
    for pattern, code, hint in _STOPS:
        if pattern.search(words) and (code != "collection" or effect == "write"):
            return StopRunError(message, code=code, hint=hint)
    if _ABSENT.search(words):
        return _absent(message)
    if _RATE.search(words):
        return RateLimitedError(message)
    if _INACTIVE.search(words):
        return unclear(message, "tenant-inactive", effect, _INACTIVE_HINT)
    return unclear(message, "unavailable", effect) if _PASSING.search(words) else None


def _of_call(error: grpc.RpcError, doing: str, effect: Effect, secret: str) -> EmbedmillError:
    code, words = error.code(), cleaned(error.details() or "", secret)
    message = f"{doing}: {code.name}: {words or 'no reason given'}"
    if code in _CREDENTIALS_CODES:
        return StopRunError(message, code="credentials", hint=CREDENTIALS_HINT)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        too_large = _TOO_LARGE.search(words)
        return _refusal(message, effect) if too_large else RateLimitedError(message)
    if code == grpc.StatusCode.UNAVAILABLE and _NOT_SENT.search(words):
        return TransientError(message, code="not-sent", hint=_AWAY_HINT)
    return of_words(words, message, effect) or _of_code(code, message, effect)


def _of_code(code: grpc.StatusCode, message: str, effect: Effect) -> EmbedmillError:
    match code:
        case grpc.StatusCode.NOT_FOUND:
            return _absent(message)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.FAILED_PRECONDITION:
            return _refusal(message, effect)
        case grpc.StatusCode.UNIMPLEMENTED:
            hint = "check store.grpc_url: something else answers there"
            return StopRunError(message, code="store-url", hint=hint)
        # What the server refuses comes as UNKNOWN, and so does what broke in the middle of it. A
        # question is refused; a write may be repeated, and so is unclear.
        case grpc.StatusCode.UNKNOWN if effect == "read":
            return RefusedError(message, code="refused-by-store")
        case _:
            return unclear(message, "no-reply", effect)


def _of_status(
    error: UnexpectedStatusCodeError, doing: str, effect: Effect, secret: str
) -> EmbedmillError:
    call = _call_behind(error)
    if call is not None:
        return _of_call(call, doing, effect, secret)
    words = cleaned(_said(error.error), secret)
    message = f"{doing}: {error.status_code}: {words or 'no reason given'}"
    known = _of_known_status(error.status_code, message) or of_words(words, message, effect)
    if known is not None:
        return known
    if error.status_code >= 500 or error.status_code in (200, 408, 425, 499):
        return unclear(message, f"http-{error.status_code}", effect)
    return _refusal(message, effect, f"http-{error.status_code}")


def _of_known_status(status: int, message: str) -> EmbedmillError | None:
    match status:
        case 401 | 403 | 407:
            return StopRunError(message, code="credentials", hint=CREDENTIALS_HINT)
        case 404:
            return _absent(message)
        case 429:
            return RateLimitedError(message)
        case 503:
            return TransientError(message, code="unavailable")
        case 507:
            return StopRunError(message, code="disk-full", hint=FULL_HINT)
        case _:
            return None


def _of_client(error: Exception, doing: str, effect: Effect, secret: str) -> EmbedmillError:
    call = _call_behind(error)
    if call is not None:
        return _of_call(call, doing, effect, secret)
    message = f"{doing}: {cleaned(f'{type(error).__name__}: {error}', secret)}"
    if isinstance(error, AuthenticationFailedError):
        return StopRunError(message, code="credentials", hint="give store.api_key")
    if _behind(error, (WeaviateConnectionError, httpx.ConnectError, httpx.ConnectTimeout)):
        return TransientError(message, code="not-sent", hint=_AWAY_HINT)
    if isinstance(error, WeaviateInvalidInputError):
        return _refusal(message, effect)
    code = "unreadable-reply" if isinstance(error, ResponseCannotBeDecodedError) else "no-reply"
    return unclear(message, code, effect)


def _call_behind(error: BaseException) -> grpc.RpcError | None:
    """The gRPC error that one of the client's stands for; it keeps it only as its context."""
    return _behind(error, (grpc.RpcError,))


def _behind(error: BaseException, kinds: tuple[type[BaseException], ...]) -> Any:  # noqa: ANN401, one of the kinds
    """The first error of these kinds that another stands for, itself included; None without."""
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, kinds):
        behind = behind.__cause__ or behind.__context__
    return behind


def _refusal(message: str, effect: Effect, code: str = "refused-by-store") -> EmbedmillError:
    if effect == "write":
        return PermanentError(message, code="refused-by-store")
    return RefusedError(message, code=code)


def _absent(message: str) -> RefusedError:
    return RefusedError(message, code="no-collection", hint="check the name, and store.url")


def _said(body: object) -> str:
    """The words of Weaviate's ``{"error": [{"message": ...}]}``, or of something else."""
    match body:
        case {"error": [{"message": message}, *_]}:
            return str(message)
        case {"message": message}:
            return str(message)
        case None:
            return ""
        case _:
            return str(body)
