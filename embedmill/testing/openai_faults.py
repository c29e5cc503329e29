"""What goes wrong at the fake OpenAI server, and when: a plan by route and number of the call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import yaml

Route = Literal[
    "files.create",
    "files.list",
    "files.get",
    "files.content",
    "files.delete",
    "batches.create",
    "batches.list",
    "batches.get",
    "batches.cancel",
    "embeddings",
    # Not a route: the n-th job that is created.
    "job",
]
Deed = Literal[
    # Any route.
    "rate-limit",
    "no-money",
    "bad-key",
    "error",
    "html-502",
    "not-found",
    "token-limit",
    "drop",
    "drop-reply",
    "slow",
    "html-200",
    # files.content
    "cut",
    "cut-at-line",
    "short",
    # embeddings
    "shuffled-reply",
    "short-reply",
    "doubled-index-reply",
    "nan-reply",
    "narrow-reply",
    "empty-reply",
    # job: how it ends
    "fail",
    "expire",
    "cancel",
    "stay",
    "no-output-id",
    "empty-error-id",
    # job: its result rows
    "reject-rows",
    "fail-rows",
    "broke-rows",
    "miss-rows",
    "double-rows",
    "null-id-rows",
    "unknown-row",
    "nan-rows",
    "null-rows",
    "narrow-rows",
    "short-rows",
    "contradict-rows",
    "malformed-line",
    "blank-line",
    "in-order",
    "as-floats",
]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that goes wrong.

    Attributes:
        at: route, or ``job``. (Not ``on``: YAML takes that for a yes.)
        do: what goes wrong.
        call: number of the first call that it happens to, from 1.
        times: how many calls in a row; 0: all from then on.
        count: rows, or bytes, or polls that it takes.
        value: a status, a code, or a header's value.
        header: that carries a rate limit's wait.
        seconds: that a reply is slow.
    """

    at: Route
    do: Deed
    call: int = 1
    times: int = 1
    count: int = 1
    value: str = ""
    header: str = "retry-after"
    seconds: float = 1.0


class FaultPlan:
    """Counts the calls of every route and says what goes wrong with each."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.calls: Counter[str] = Counter()
        self._faults = list(faults)
        self._lock = threading.Lock()

    def add(self, *faults: Fault) -> None:
        """Plan more, counted from the server's first call like all others."""
        with self._lock:
            self._faults += faults

    def next_of(self, route: Route) -> list[Fault]:
        """Count a call, and say all that goes wrong with it."""
        with self._lock:
            self.calls[route] += 1
            number = self.calls[route]
            return [
                fault
                for fault in self._faults
                if fault.at == route
                and number >= fault.call
                and (fault.times == 0 or number < fault.call + fault.times)
            ]


def load_faults(path: Path) -> list[Fault]:
    """Read a YAML list of faults: ``- {at: batches.create, do: drop-reply, call: 2}``.

    Raises:
        ValueError: the file is no such list; says which entry and which key.
    """
    try:
        return msgspec.convert(yaml.safe_load(path.read_text("utf-8")) or [], list[Fault])
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
