"""The fake Cohere server's state: options, the bill, and what counts as an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from embedmill.openai_tokens import estimated_tokens
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fake_api import RefusedRequest, Reply
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fault_plan import FaultPlan


class ApiError(RefusedRequest):
    """An error reply in Cohere's shape: ``message``, and an id.

    Attributes:
        status: of HTTP.
        body: as JSON.
    """

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None, *, kind: str = ""
    ) -> None:
        self.status = status
        self.body = {"id": "00000000-0000-0000-0000-000000000000", "message": message}
        if kind:
            self.body["error_type"] = kind
        super().__init__(Reply.of_json(self.body, status, headers))


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the fake server behaves when nothing goes wrong.

    Attributes:
        refused_words: a text with one of them is refused, as a text is that the model cannot take.
        count_tokens: of one text.
        request_tokens: that are too many for one request.
        api_key: the only one that is right; empty: any.
        polls_per_status: questions about a job before it moves on.
        now: seconds since the epoch.
    """

    refused_words: tuple[str, ...] = ()
    count_tokens: Callable[[str], int] = estimated_tokens
    request_tokens: int = 1_000_000
    api_key: str = ""
    polls_per_status: int = 1
    now: Callable[[], float] = time.time


@dataclass(slots=True)
class Account:
    """All that one fake server holds.

    Attributes:
        options: how the server behaves.
        plan: what goes wrong.
        bill: what was charged for.
        lock: held by whoever changes something.
    """

    options: ServerOptions
    plan: FaultPlan[Fault]
    bill: Bill = field(default_factory=Bill)
    lock: threading.RLock = field(default_factory=threading.RLock)
