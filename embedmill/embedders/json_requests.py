"""Posting JSON to one address of a provider, and saying what a bad reply means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from weakref import finalize

import httpx2
import orjson

from embedmill.embedders.reply_memory import ReplyMemory, filled
from embedmill.errors import (
    EmbedmillError,
    RefusedError,
    SettingsError,
    StopRunError,
    TransientError,
)
from embedmill.openai_replies import ErrorReply, error_of
from embedmill.redaction import redacted

# Seconds to reach the server; it then has as long as the settings say.
_CONNECT_S = 5
# Memory of so many replies is kept: more are hardly read at a time in one process.
_KEPT_REPLIES = 4
# Of the size that a reply states; what comes beyond it is read all the same.
_MOST_BELIEVED = 1 << 26


class OpenReply:
    """A reply that has begun; its body is still on the way."""

    def __init__(self, reply: httpx2.Response, memory: ReplyMemory, doing: str) -> None:
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
            lent, size = filled(lent, self._reply.iter_bytes(), _stated_size(self._reply))
        except httpx2.HTTPError as error:
            raise _lost(error, self._doing) from error
        finally:
            self._reply.close()
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
        self._client = httpx2.Client(
            headers={"Content-Type": "application/json", "Accept": "application/json", **headers},
            timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_S),
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
        )
        # An embedder that is let go without a word leaves no connection open.
        finalize(self, self._client.close)
        try:
            self._client.build_request("POST", url)
        except httpx2.InvalidURL as error:
            raise SettingsError(f"embedder.base_url: {url!r} is no address: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

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
        request = self._client.build_request("POST", self._url, content=content)
        try:
            reply = self._client.send(request, stream=True)
        except httpx2.UnsupportedProtocol as error:
            raise StopRunError(
                f"embedder.base_url: {self._url!r} is no address: {error}",
                code="embedder-settings",
                hint="an address begins with https:// or http://",
            ) from error
        except httpx2.HTTPError as error:
            raise _lost(error, doing) from error
        self._heed(reply.headers)
        opened = OpenReply(reply, self._memory, doing)
        if reply.is_success:
            return opened
        with opened.read() as body:
            raise self._meaning(reply, bytes(body), doing)

    def _meaning(self, reply: httpx2.Response, body: bytes, doing: str) -> EmbedmillError:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        meaning = error_of(
            ErrorReply(reply.status_code, headers, body), doing=doing, now=self._now()
        )
        if isinstance(meaning, RefusedError) or reply.is_redirect:
            # No such address: not one text could ever be embedded.
            return StopRunError(
                str(meaning), code="embedder-settings", hint="check embedder.base_url"
            )
        return meaning


def _stated_size(reply: httpx2.Response) -> int:
    """Bytes of the body on the wire, which is all of it unless it is compressed; 0: not stated."""
    stated = reply.headers.get("content-length", "")
    return min(int(stated), _MOST_BELIEVED) if stated.isdecimal() else 0


def _lost(error: httpx2.HTTPError, doing: str) -> TransientError:
    return TransientError(redacted(f"{doing}: {type(error).__name__}: {error}"), code="connection")
