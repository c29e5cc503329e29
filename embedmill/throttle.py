"""Keeping writes to a store at the pace that the store takes, request by request.

Additive increase, multiplicative decrease: what TCP does with packets. A writer has at most one
request in flight; what adapts is the share of time in which it has one. Every request that goes
well adds a little to the share, every sign of too much halves it: too many requests, a time-out, a
refusal that will pass, replies that have become slower. Writers that do so side by side, of one run
or of several, come to equal shares without a word between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVar

from embedmill.counts import WriteCounts
from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    PermanentError,
    RateLimitedError,
    TransientError,
)

T = TypeVar("T")
# What a write came to: ``permanent-record`` is about what it holds, ``permanent-config`` about
# anything that no other record would change: keys, rights, disks, limits of the collection.
Outcome: TypeAlias = Literal["ok", "transient", "permanent-record", "permanent-config", "unknown"]

# From 1/64 back to all the time within 20 requests.
_INCREASE = 0.05
_LEAST_SHARE = 1 / 64
_LONGEST_PAUSE_S = 5.0
# Replies have become slower when eight took, per record, so many times what eight others did at
# best among the last 128 (a store that has become slower for good is not overloaded)...
_RISE = 3.0
_RECENT = 8
_LOOKS = 16
# ...unless they are quick all the same.
_SLOW_S = 0.5
_FIRST_WAIT_S = 0.25
# Longer waits are the driver's: it can be stopped meanwhile, and has other shards to see to.
LONGEST_WAIT_S = 30.0
MAX_TRIES = 5


class RequestPace(Protocol):
    """Makes requests that write: when, and how often."""

    def __call__(self, send: Callable[[], T], rows: int) -> T:
        """Return what ``send`` returned.

        Args:
            send: makes one request; repeating it must be safe.
            rows: records in it; 0 for what takes another time than writing them.
        """
        ...


def at_once(send: Callable[[], T], rows: int) -> T:  # noqa: ARG001 (of the protocol)
    """The pace of those who have one of their own: once, without waiting."""
    return send()


def outcome_of(error: EmbedmillError | None) -> Outcome:
    """The class of a write's end."""
    match error:
        case None:
            return "ok"
        case TransientError():
            return "transient"
        case OutcomeUnknownError():
            return "unknown"
        case PermanentError():
            return "permanent-record"
        case _:
            return "permanent-config"


@dataclass(slots=True)
class InFlightShare:
    """The share of time in which a request may be in flight; the algorithm alone.

    Attributes:
        share: from 1/64 to 1.
        halvings: so far.
    """

    share: float = 1.0
    halvings: int = 0
    _most_rows: int = 0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _looks: deque[float] = field(default_factory=lambda: deque(maxlen=_LOOKS))

    def ok(self, seconds: float, rows: int) -> None:
        """A request with so many records has gone well and taken so long."""
        self.share = min(1.0, self.share + _INCREASE)
        self._most_rows = max(self._most_rows, rows)
        # Per record a small request takes longer; like is compared with like.
        if 2 * rows > self._most_rows:
            self._recent.append(seconds / rows)
        if rows and len(self._recent) == _RECENT:
            self._look(seconds)

    def pushed_back(self) -> None:
        """The store has too much to do."""
        self.share = max(_LEAST_SHARE, self.share / 2)
        self.halvings += 1
        self._recent.clear()

    def pause_after(self, seconds: float) -> float:
        """Seconds to leave between a request that took so long and the next."""
        return min(_LONGEST_PAUSE_S, seconds * (1 / self.share - 1))

    def _look(self, seconds: float) -> None:
        mean = sum(self._recent) / _RECENT
        self._recent.clear()
        at_best = min(self._looks, default=mean)
        self._looks.append(mean)
        if mean > _RISE * at_best and seconds > _SLOW_S:
            self.pushed_back()


class Throttle:
    """The :class:`RequestPace` of one writer.

    A request that was refused for the moment, or whose end is not known, is made again after a wait
    that doubles, at most five times in all; nothing that was confirmed before is sent again for it.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        spread: float = 0.0,
    ) -> None:
        """Begin with all the time there is.

        Args:
            clock: monotonic seconds.
            sleep: waits for so many seconds.
            spread: 0 to 1, other for every writer: those who were told to wait together should not
                come back together. Adds up to a quarter to a wait.
        """
        self._clock = clock
        self._sleep = sleep
        self._spread = 1 + spread / 4
        self._state = InFlightShare()
        self._free_at = clock()
        self._counts = WriteCounts()
        self._halvings_told = 0

    @property
    def share(self) -> float:
        """Share of time in which a request may be in flight now."""
        return self._state.share

    def __call__(self, send: Callable[[], T], rows: int) -> T:
        """See :class:`RequestPace`.

        Raises:
            EmbedmillError: what ``send`` raised, when it is of no use to repeat it here: refusals
                that will not pass, waits of more than 30 s, the fifth failure.
        """
        for number in range(1, MAX_TRIES + 1):
            self._wait_until(self._free_at)
            started = self._clock()
            try:
                returned = send()
            except (TransientError, OutcomeUnknownError) as error:
                self._failed(error)
                wait = self._wait_after(error, number)
                if number == MAX_TRIES or wait > LONGEST_WAIT_S:
                    raise
                self._free_at = self._clock() + wait
                continue
            self._went_well(self._clock() - started, rows)
            return returned
        raise AssertionError("the last try returns or raises")

    def take_counts(self) -> WriteCounts:
        """What has happened since this was asked the last time."""
        new = self._state.halvings - self._halvings_told
        counts = self._counts + WriteCounts(halvings=new)
        self._counts, self._halvings_told = WriteCounts(), self._state.halvings
        return counts

    def _went_well(self, seconds: float, rows: int) -> None:
        self._counts += WriteCounts(requests=1)
        self._state.ok(seconds, rows)
        self._free_at = self._clock() + self._state.pause_after(seconds)

    def _failed(self, error: EmbedmillError) -> None:
        self._state.pushed_back()
        self._counts += WriteCounts(
            requests=1,
            rate_limited=int(isinstance(error, RateLimitedError)),
            transient=int(outcome_of(error) == "transient"),
            unknown=int(outcome_of(error) == "unknown"),
        )

    def _wait_after(self, error: EmbedmillError, number: int) -> float:
        told = error.retry_after if isinstance(error, RateLimitedError) else None
        return self._spread * max(told or 0.0, _FIRST_WAIT_S * 2.0 ** (number - 1))

    def _wait_until(self, time: float) -> None:
        wait = time - self._clock()
        if wait > 0:
            self._counts += WriteCounts(waited_s=wait)
            self._sleep(wait)
