"""Requests to Cohere's API, streamed where they are large; none is repeated here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import httpx2
import msgspec
import orjson

from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    RateLimitedError,
    TransientError,
)
from embedmill.openai_replies import ErrorReply, job_error_of
from embedmill.redaction import redacted

_T = TypeVar("_T")
# Seconds to reach the server; it then has as long as the settings say.
_CONNECT_S = 5
_CHUNK = 1 << 20
# Of a call that did not reach the server; certain only before a connection stands.
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class _DatasetId(msgspec.Struct):
    id: str


class CohereHttp:
    """Keeps connections to one address."""

    def __init__(
        self, base_url: str, key: str, timeout_s: float, now: Callable[[], float] = time.time
    ) -> None:
        self._base = base_url.rstrip("/")
        self._now = now
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {key}", "Accept": "application/json"},
            timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_S),
        )
        # Signed addresses are elsewhere, and must not be shown the key.
        self._unsigned = httpx2.Client(
            timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_S), follow_redirects=True
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._unsigned.close()

    def get(
        self, path: str, kind: type[_T], *, doing: str, query: Mapping[str, str] | None = None
    ) -> _T:
        """Ask for a record."""
        reply = self._sent(
            self._client.build_request("GET", self._base + path, params=dict(query or {})), doing
        )
        return _read(reply.content, kind, doing)

    def post(self, path: str, body: object, *, doing: str) -> bytes:
        """Post JSON; what the server says."""
        content = b"" if body is None else orjson.dumps(body)
        request = self._client.build_request(
            "POST",
            self._base + path,
            content=content,
            headers={"Content-Type": "application/json"},
        )
        return self._sent(request, doing).content

    def create(self, path: str, body: object, kind: type[_T]) -> _T:
        """Create a job; what the server says of it.

        Raises:
            OutcomeUnknownError: code ``create-unknown``: nobody knows whether it exists.
            TransientError: it does not: code ``not-sent``, or the server asked to wait.
        """
        doing = "creating a job"
        try:
            return _read(self.post(path, body, doing=doing), kind, doing)
        except RateLimitedError:
            raise
        except TransientError as error:
            if error.code == "not-sent":
                raise
            raise OutcomeUnknownError(
                f"{error}; the job may exist", code="create-unknown"
            ) from error

    def upload(self, path: Path, name: str, query: Mapping[str, str]) -> str:
        """Create a dataset of a file, which is streamed; its id.

        Raises:
            TransientError: code ``upload-lost``: it may exist all the same.
        """
        doing = f"uploading {name}"
        with path.open("rb") as handle:
            request = self._client.build_request(
                "POST",
                f"{self._base}/v1/datasets",
                params=dict(query),
                files={"data": (name, handle, "application/jsonl")},
            )
            try:
                return _read(self._sent(request, doing).content, _DatasetId, doing).id
            except RateLimitedError:
                raise
            except TransientError as error:
                raise TransientError(str(error), code="upload-lost") from error

    def download(self, url: str, path: Path, size: int | None) -> None:
        """Fetch a part of a result to the local disk, whole.

        Raises:
            TransientError: it is not to be had now; its address may have expired.
        """
        doing = f"reading {path.name}"
        try:
            # Without compression the bytes can be counted.
            headers = {"Accept-Encoding": "identity"}
            with self._unsigned.stream("GET", url, headers=headers) as reply:
                if not reply.is_success:
                    raise TransientError(f"{doing}: {reply.status_code}", code="part-refused")
                stated = size if size is not None else _length(reply.headers)
                with path.open("wb") as file:
                    for chunk in reply.iter_bytes(_CHUNK):
                        file.write(chunk)
        except httpx2.HTTPError as error:
            raise TransientError(
                redacted(f"{doing}: {type(error).__name__}: {error}"), code="connection"
            ) from error
        arrived = path.stat().st_size
        if stated is not None and arrived != stated:
            raise TransientError(f"{doing}: {arrived} of {stated} bytes", code="truncated-results")

    def _sent(self, request: httpx2.Request, doing: str) -> httpx2.Response:
        try:
            reply = self._client.send(request)
        except httpx2.HTTPError as error:
            code = "not-sent" if isinstance(error, _UNSENT) else "connection"
            words = f"{doing}: {type(error).__name__}: {error}"
            raise TransientError(redacted(words), code=code) from error
        if reply.is_success:
            return reply
        raise self._meaning(reply, doing)

    def _meaning(self, reply: httpx2.Response, doing: str) -> EmbedmillError:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        said = ErrorReply(reply.status_code, headers, reply.content)
        return job_error_of(said, doing=doing, now=self._now())


def _read(content: bytes, kind: type[_T], doing: str) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        # A page of a proxy, with status 200; the server may have done what was asked.
        raise TransientError(
            f"{doing}: the reply cannot be read: {error}", code="unreadable-reply"
        ) from error


def _length(headers: httpx2.Headers) -> int | None:
    length = headers.get("content-length")
    return int(length) if length else None
