"""The fake Voyage server's state: options, the bill, and what counts as an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from embedmill.openai_tokens import estimated_tokens
from embedmill.testing.fake_api import RefusedRequest, Reply
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.voyage_faults import Fault


class ApiError(RefusedRequest):
    """An error reply in Voyage's shape: nothing but ``detail``.

    Attributes:
        status: of HTTP.
        body: as JSON.
    """

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = {"detail": detail}
        super().__init__(Reply.of_json(self.body, status, headers))


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the fake server behaves when nothing goes wrong.

    Attributes:
        refused_words: a text with one of them is refused, as a text is that the model cannot take.
        count_tokens: of one text.
        api_key: the only one that is right; empty: any.
        polls_per_status: questions about a job before it moves on.
        jobs_at_a_time: that are not finished.
        enqueued_tokens: over these.
        now: seconds since the epoch.
    """

    refused_words: tuple[str, ...] = ()
    count_tokens: Callable[[str], int] = estimated_tokens
    api_key: str = ""
    polls_per_status: int = 1
    jobs_at_a_time: int = 100
    enqueued_tokens: int = 1_000_000_000
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
