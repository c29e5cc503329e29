"""The contract between the frame of all fake servers and what one of them knows.

A fake is an *API* (:class:`FakeApi`) in a frame, :class:`embedmill.testing.fake_server.FakeServer`,
which speaks real HTTP on loopback. For every request the frame

1. logs method and path, whatever becomes of it;
2. asks the API for the route; a request without one is refused and counts for no route;
3. counts the call in the fault plan, and does what is planned to happen before the work or instead
   of it: the deeds of :data:`~embedmill.testing.fault_plan.CommonDeed` by itself, all others by
   :meth:`FakeApi.refuse`;
4. has the API do the work: :meth:`FakeApi.answer`;
5. spoils the reply, or hangs up, where that is planned: the work has been done all the same;
6. reads what is left of the request, then writes the reply. A client that still sent would take
   an early reply for a broken connection.

Strictness is the API's: keys, limits and error shapes are those of the real server, and are
checked in the real server's order. An API raises :class:`RefusedRequest` from any of its methods.
Several requests are answered at a time, so an API locks what it changes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from typing import Any, Generic, Protocol, Self
from urllib.parse import parse_qs, unquote, urlsplit

from embedmill.testing.fault_plan import FaultPlan, FaultT, planned

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back.

    Attributes:
        status: of HTTP.
        content: the body, or its parts in order.
        content_type: of the body.
        headers: beside ``Content-Type`` and ``Content-Length``.
        stated: bytes that the reply promises. Needed with parts; fewer bytes than this end in a
            broken connection.
    """

    status: int = 200
    content: bytes | Iterable[bytes] = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    stated: int | None = None

    @classmethod
    def of_json(
        cls, record: object, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Self:
        """A record as JSON; NaN is let pass, as many a server does."""
        return cls(status, json.dumps(record).encode(), headers=headers or {})


class RefusedRequest(Exception):  # noqa: N818 - a reply, not a fault of the program
    """A reply that is an error; servers derive theirs from it.

    Attributes:
        reply: as the real server words it.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status, reply.content)
        self.reply = reply


class HangUp(Exception):  # noqa: N818 - as above
    """The connection ends without a reply."""


class Request:
    """One request; its body is read when it is asked for.

    Attributes:
        method: in capitals.
        path: without the query.
        query: all values by name, empty ones too.
        headers: names in any case.
        number: of this request at this server, from 1.
        arrived: seconds of the monotonic clock.
    """

    def __init__(self, handler: BaseHTTPRequestHandler, number: int) -> None:
        url = urlsplit(handler.path)
        self.method = handler.command
        self.path = url.path
        self.query: Mapping[str, list[str]] = parse_qs(url.query, keep_blank_values=True)
        self.headers: Message = handler.headers
        self.number = number
        self.arrived = time.monotonic()
        self._stream = handler.rfile
        self._left = int(self.headers.get("content-length") or 0)

    @property
    def parameters(self) -> dict[str, str]:
        """The query with one value for each name, empty ones left out."""
        return {name: values[-1] for name, values in self.query.items() if values[-1]}

    @property
    def bearer(self) -> str:
        """The key of the ``Authorization`` header; empty without one."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @cached_property
    def body(self) -> bytes:
        """All that was not yet read."""
        return self.read(self._left)

    @property
    def left(self) -> int:
        """Bytes of the body that were not yet read."""
        return self._left

    def read(self, size: int) -> bytes:
        """The next bytes of the body; nothing at its end."""
        content = self._stream.read(min(size, self._left))
        self._left = self._left - len(content) if content else 0
        return content

    def drain(self) -> None:
        """Read what is left of the body."""
        while self.read(_CHUNK):
            pass

    def json(self) -> Any:  # noqa: ANN401 - what came over the wire
        """The body decoded; None when it is empty.

        Raises:
            ValueError: it is not JSON.
        """
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class Call(Generic[FaultT]):
    """A request whose route is known.

    Attributes:
        request: as it came.
        route: of it.
        names: parts of the path that the route leaves open, unquoted.
        faults: that are planned for it.
    """

    request: Request
    route: str
    names: tuple[str, ...]
    faults: Sequence[FaultT]

    @property
    def name(self) -> str:
        """The first open part of the path; empty where there is none."""
        return self.names[0] if self.names else ""

    def fault(self, *deeds: str) -> FaultT | None:
        """The first of its faults that is one of these deeds."""
        return planned(self.faults, *deeds)


class RouteTable:
    """Which method and path is which route."""

    def __init__(self, *routes: tuple[str, str, str]) -> None:
        """Keep the routes.

        Args:
            routes: method, expression of the whole path with a group for each open part, route.
        """
        self._routes = [(method, re.compile(form), route) for method, form, route in routes]

    def find(self, method: str, path: str) -> tuple[str, tuple[str, ...]] | None:
        """Route and open parts; None where there is no such address."""
        for known, form, route in self._routes:
            found = form.fullmatch(path) if known == method else None
            if found:
                return route, tuple(map(unquote, found.groups()))
        return None


class FakeApi(Protocol[FaultT]):
    """What one fake server knows; see the module for who calls it when.

    Attributes:
        plan: what goes wrong.
        request_id_header: that every reply carries a number in; empty: none.
    """

    plan: FaultPlan[FaultT]
    request_id_header: str

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """Route and open parts of the path.

        Raises:
            RefusedRequest: there is no such address.
        """
        ...

    def refuse(self, fault: FaultT, request: Request) -> None:
        """Refuse, where that is what ``fault`` plans to happen instead of the work; else nothing.

        Raises:
            RefusedRequest: as the real server, or one that stands before it, words it.
        """
        ...

    def answer(self, call: Call[FaultT]) -> Reply:
        """Check the key and all else that the real server checks, and do the work.

        Raises:
            RefusedRequest: the real server would refuse this.
        """
        ...
