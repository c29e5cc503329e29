"""Posting JSON to one address of a provider, and saying what a bad reply means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from weakref import finalize

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from embedmill.embedders.connection_pool import pool_of
from embedmill.embedders.reply_memory import ReplyMemory, filled
from embedmill.errors import (
    EmbedmillError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.openai_replies import ErrorReply, error_of
from embedmill.redaction import redacted

# Bytes of a reply that are asked for at a time.
_PART = 1 << 18
# Memory of so many replies is kept: more are hardly read at a time in one process.
_KEPT_REPLIES = 4
# Of the size that a reply states; what comes beyond it is read all the same.
_MOST_BELIEVED = 1 << 26


class OpenReply:
    """A reply that has begun; its body is still on the way."""

    def __init__(self, reply: urllib3.BaseHTTPResponse, memory: ReplyMemory, doing: str) -> None:
        self._reply = reply
        self._memory = memory
        self._doing = doing

    @contextmanager
    def read(self) -> Iterator[memoryview]:
        """All of the body, until the context ends; the connection is free then, or closed.

        Raises:
            TransientError: it broke off.
        """
        lent = self._memory.lend()
        try:
            lent, size = filled(lent, self._reply.stream(_PART), _stated_size(self._reply))
        except HTTPError as error:
            self._reply.close()
            raise _lost(error, self._doing) from error
        finally:
            self._reply.release_conn()
        yield memoryview(lent)[:size]
        self._memory.give_back(lent)


class JsonRequests:
    """Keeps connections to one address. Several threads may post at a time.

    No request is repeated here: whether that is right, and how long to wait before it, is for the
    caller to know.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        connections: int,
        now: Callable[[], float] = time.time,
        heed: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """Connect later.

        Args:
            url: that is posted to.
            headers: of every request.
            timeout_s: silence after which a request counts as lost.
            connections: that are kept open.
            now: seconds since the epoch, for waits that a reply gives as a date.
            heed: reads the headers of every reply.

        Raises:
            SettingsError: the address is none.
        """
        self._url = url
        self._heed = heed
        self._now = now
        self._memory = ReplyMemory(_KEPT_REPLIES)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": "embedmill",
            **headers,
        }
        self._pool = pool_of(url, timeout_s=timeout_s, connections=connections)
        # An embedder that is let go without a word leaves no connection open.
        finalize(self, self._pool.clear)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def request(self, body: object, *, doing: str) -> Callable[[], OpenReply]:
        """A request that posts when it is called, as :meth:`post` does.

        Args:
            body: to send as JSON.
            doing: what is asked for, for messages.
        """
        return partial(self.post, orjson.dumps(body), doing=doing)

    def post(self, content: bytes, *, doing: str) -> OpenReply:
        """Post, and wait until the reply begins: the provider has done its work then.

        Args:
            content: JSON.
            doing: what is asked for, for messages.

        Raises:
            TransientError: there was no reply, or the server is in trouble.
            RateLimitedError: it asks to wait.
            PermanentError: it refuses the request for what it holds.
            StopRunError: key, money, address: no request can succeed.
        """
        try:
            reply = self._pool.urlopen(
                "POST",
                self._url,
                body=content,
                headers=self._headers,
                redirect=False,
                preload_content=False,
            )
        except HTTPError as error:
            raise _lost(error, doing) from error
        self._heed(reply.headers)
        opened = OpenReply(reply, self._memory, doing)
        if 200 <= reply.status < 300:
            return opened
        with opened.read() as body:
            raise self._meaning(reply, bytes(body), doing)

    def _meaning(self, reply: urllib3.BaseHTTPResponse, body: bytes, doing: str) -> EmbedmillError:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        meaning = error_of(ErrorReply(reply.status, headers, body), doing=doing, now=self._now())
        if isinstance(meaning, RefusedError) or 300 <= reply.status < 400:
            # No such address: not one text could ever be embedded.
            return StopRunError(
                str(meaning), code="embedder-settings", hint="check embedder.base_url"
            )
        return meaning


def _stated_size(reply: urllib3.BaseHTTPResponse) -> int:
    """Bytes of the body on the wire, which is all of it unless it is compressed; 0: not stated."""
    stated = reply.headers.get("content-length", "")
    return min(int(stated), _MOST_BELIEVED) if stated.isdecimal() else 0


def _lost(error: HTTPError, doing: str) -> TransientError:
    return TransientError(redacted(f"{doing}: {type(error).__name__}: {error}"), code="connection")
