"""What goes wrong at the fake Pinecone, and when: a plan by route and number of the call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

Route = Literal[
    "indexes.create",
    "indexes.list",
    "indexes.get",
    "indexes.delete",
    "vectors.upsert",
    "vectors.delete",
    "vectors.fetch",
    "vectors.list",
    "vectors.query",
    "stats",
    "namespaces.create",
    "namespaces.list",
    "namespaces.get",
    "namespaces.delete",
    "aliases.create",
    "aliases.list",
    "aliases.get",
    "aliases.repoint",
    "aliases.delete",
]
Deed = Literal[
    # Instead of the work.
    "rate-limit",
    "month-limit",
    "quota",
    "no-money",
    "bad-key",
    "forbidden",
    "too-large",
    "error",
    "html-502",
    "html-200",
    "drop",
    # After the work.
    "drop-reply",
    "slow-reply",
    "cut-reply",
    # Of vectors.upsert: the server's own mind about records.
    "refuse-id",
    "store-some",
    "store-none",
]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that goes wrong.

    Attributes:
        at: route. (Not ``on``: YAML takes that for a yes.)
        do: what goes wrong.
        call: number of the first call that it happens to, from 1.
        times: how many calls in a row; 0: all from then on.
        count: records that ``store-some`` stores.
        status: of ``error``.
        value: id of ``refuse-id``, message of ``error`` (``{key}``: the caller's API key), header
            of ``rate-limit``.
        seconds: that a reply is slow.
    """

    at: Route
    do: Deed
    call: int = 1
    times: int = 1
    count: int = 0
    status: int = 500
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

    def next_call(self, **fault: Any) -> None:  # noqa: ANN401 (fields of a fault)
        """Plan what goes wrong with the next call of a route."""
        self.add(Fault(call=self.calls[fault["at"]] + 1, **fault))

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
    """Read a YAML list of faults: ``- {at: vectors.upsert, do: drop-reply, call: 2}``.

    Raises:
        ValueError: the file is no such list; says which entry and which key.
    """
    try:
        return msgspec.convert(yaml.safe_load(path.read_text("utf-8")) or [], list[Fault])
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
