"""What goes wrong at a fake server, and when: a plan by route and number of the call.

A server's own module says which routes and deeds it has::

    Route = Literal["embeddings", "files.create"]
    Deed = Literal[CommonDeed, "rate-limit", "nan-reply"]

    class Fault(PlannedFault):
        at: Route
        do: Deed
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

# What the frame of every server does by itself; see embedmill.testing.fake_server.
CommonDeed = Literal[
    # Instead of the work: hang up; error pages of a proxy; such a page as if all were well.
    "drop",
    "html-502",
    "html-413",
    "html-200",
    # Before the work.
    "slow",
    # The work is done; the reply is not what it should be.
    "drop-reply",
    "slow-reply",
    "cut-reply",
]
# Of a reply with vectors; done by embedmill.testing.fake_vectors.
VectorDeed = Literal[
    "shuffled-reply",
    "short-reply",
    "doubled-index-reply",
    "nan-reply",
    "narrow-reply",
    "empty-reply",
]


class PlannedFault(BaseModel):
    """One thing that goes wrong.

    Attributes:
        at: route. (Not ``on``: YAML takes that for a yes.)
        do: what goes wrong.
        call: number of the first call of the route that it happens to, from 1.
        times: how many calls in a row; 0: all from then on.
        count: of what the deed is about: rows, bytes, points, polls.
        value: a status, a code, a header's value, words.
        seconds: that ``slow`` takes before the work, and that pass from the request to its reply
            with ``slow-reply``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    at: str
    do: str
    call: int = 1
    times: int = 1
    count: int = 1
    value: str = ""
    seconds: float = 1.0

    def concerns(self, route: str, number: int) -> bool:
        """Whether it happens to the ``number``-th call of ``route``."""
        begun = self.at == route and number >= self.call
        return begun and (self.times == 0 or number < self.call + self.times)


FaultT = TypeVar("FaultT", bound=PlannedFault)


class FaultPlan(Generic[FaultT]):
    """Counts the calls of every route and says what goes wrong with each.

    Attributes:
        kind: the server's type of fault.
        calls: so far, by route.
    """

    def __init__(self, kind: type[FaultT], faults: Iterable[FaultT] = ()) -> None:
        self.kind = kind
        self.calls: Counter[str] = Counter()
        self._faults = list(faults)
        self._lock = threading.Lock()

    def add(self, *faults: FaultT) -> None:
        """Plan more, counted from the server's first call like all others."""
        with self._lock:
            self._faults += faults

    def next_call(self, **fault: Any) -> None:  # noqa: ANN401 (fields of a fault)
        """Plan what goes wrong with the next call of a route."""
        self.add(self.kind(call=self.calls[fault["at"]] + 1, **fault))

    def clear(self) -> None:
        """Plan nothing any more; the calls stay counted."""
        with self._lock:
            self._faults.clear()

    def next_of(self, route: str) -> list[FaultT]:
        """Count a call, and say all that goes wrong with it."""
        with self._lock:
            self.calls[route] += 1
            number = self.calls[route]
            return [fault for fault in self._faults if fault.concerns(route, number)]


def planned(faults: Sequence[FaultT], *deeds: str) -> FaultT | None:
    """The first of the faults that is one of these deeds."""
    return next((fault for fault in faults if fault.do in deeds), None)


def load_faults(path: Path, kind: type[FaultT]) -> list[FaultT]:
    """Read a YAML list of faults: ``- {at: embeddings, do: drop-reply, call: 2}``.

    Raises:
        ValueError: the file is no such list; says which entry and which key.
    """
    try:
        given = yaml.safe_load(path.read_text("utf-8")) or []
        return TypeAdapter(list[kind]).validate_python(given)  # type: ignore[valid-type]
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the list'}: {problem['msg']}, "
            f"found {problem['input']!r}"
            for problem in error.errors()
        ]
        raise ValueError(f"{path}: {'; '.join(problems)}") from error
