"""What goes wrong at the fake Qdrant server, and when: a plan by route and number of the call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

Route = Literal[
    "root",
    "collections.list",
    "collections.get",
    "collections.exists",
    "collections.create",
    "collections.update",
    "collections.delete",
    "index.create",
    "points.upsert",
    "points.delete",
    "points.retrieve",
    "points.scroll",
    "points.count",
    "points.query",
    "aliases.list",
    "aliases.of",
    "aliases.update",
]
ROUTES: tuple[Route, ...] = get_args(Route)
Deed = Literal[
    # Instead of the work.
    "rate-limit",
    "error",
    "html-502",
    "html-200",
    "drop",
    "bad-key",
    "forbidden",
    "read-only",
    "disk-full",
    "not-found",
    "poison",
    "too-many",
    # Before the work.
    "slow",
    # The work is done; the reply is not what it should be.
    "late-reply",
    "drop-reply",
    "truncated",
    "error-reply",
    "acknowledged",
    "wait-timeout",
    # Upserts and deletions: some of the work is done.
    "partial",
    "silent-drop",
    # Counts.
    "lag",
]


class Fault(BaseModel):
    """One thing that goes wrong.

    Attributes:
        at: route. (Not ``on``: YAML takes that for a yes.)
        do: what goes wrong.
        call: number of the first call that it happens to, from 1.
        times: how many calls in a row; 0: all from then on.
        count: points: that are lost, that a count lacks, that are too many.
        value: a status, a ``Retry-After``, or the text of a payload that is poison.
        seconds: that a reply is late.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: Route
    do: Deed
    call: int = 1
    times: int = 1
    count: int = 1
    value: str = ""
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
    """Read a YAML list of faults: ``- {at: points.upsert, do: drop-reply, call: 2}``.

    Raises:
        ValueError: the file is no such list; says which entry and which key.
    """
    try:
        given = yaml.safe_load(path.read_text("utf-8")) or []
        return TypeAdapter(list[Fault]).validate_python(given)
    except (yaml.YAMLError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error
