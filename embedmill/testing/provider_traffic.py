"""A provider's traffic in simulated time: workers that ask a rate budget, and what arrives when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from embedmill.rate_budget import SECOND, Answer, Ask, RateBudget


@dataclass(frozen=True, slots=True)
class Sender:
    """A worker that always has something to send. Times are microseconds.

    Attributes:
        sizes: estimated tokens of its requests, from which one is drawn.
        actual: tokens that a request turns out to have, of those estimated.
        transit: from its start to its arrival at most.
        latency: from its arrival to the reply.
        fate: what becomes of a request, by its number: ``reply``, ``lost``, ``die`` or ``late``.
        tenant: see ``Ask``.
        weight: see ``Ask``.
        requests: in one piece of work.
        inputs: texts of its requests, from which one number is drawn.
    """

    sizes: Sequence[int] = (100,)
    actual: Callable[[int], int] = lambda estimate: estimate
    transit: int = SECOND // 20
    latency: int = SECOND // 20
    fate: Callable[[int], str] = lambda _: "reply"
    tenant: str = ""
    weight: int = 1
    requests: int = 4
    inputs: Sequence[int] = (1,)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as the provider sees it."""

    time: int
    tokens: int
    tenant: str
    inputs: int = 1


@dataclass(slots=True)
class Traffic:
    """Runs senders against a budget until a time.

    Attributes:
        budget: that they ask.
        dice: for sizes and transits.
        arrivals: in the order of their time.
        answers: of the budget, with their times.
    """

    budget: RateBudget
    dice: random.Random
    now: int = SECOND
    arrivals: list[Arrival] = field(default_factory=list)
    answers: list[tuple[int, Answer]] = field(default_factory=list)
    _events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: int = 0

    def at(self, time: int, do: Callable[[], None]) -> None:
        """Do something at a time."""
        self._numbers += 1
        heapq.heappush(self._events, (time, self._numbers, do))

    def run(self, senders: Sequence[Sender], until: int) -> None:
        """Let all of them send from now on."""
        for number, sender in enumerate(senders):
            self.at(self.now + number, _Work(self, sender, f"{self.now}-{number}").ask)
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
        self.now = until
        self.arrivals.sort(key=lambda arrival: arrival.time)


@dataclass(slots=True)
class _Work:
    traffic: Traffic
    sender: Sender
    name: str
    number: int = 0
    wanted: Ask | None = None
    since: int = 0

    def ask(self) -> None:
        traffic = self.traffic
        if self.wanted is None:
            self.wanted = self._next()
        answer = traffic.budget.ask(replace(self.wanted, since=self.since), traffic.now)
        traffic.answers.append((traffic.now, answer))
        self.since = answer.since
        if answer.why == "granted":
            traffic.at(traffic.now + answer.wait, self.send)
        elif answer.wait:
            traffic.at(traffic.now + answer.wait, self.ask)

    def _next(self) -> Ask:
        self.number += 1
        if self.number % self.sender.requests == 1:
            self.since = 0
        size = self.traffic.dice.choice(self.sender.sizes)
        return Ask(
            ticket=f"{self.name}-{self.number}",
            tokens=size,
            inputs=self.traffic.dice.choice(self.sender.inputs),
            whole=0 if self.since else size,
            hold=5 * SECOND,
            tenant=self.sender.tenant,
            weight=self.sender.weight,
        )

    def send(self) -> None:
        assert self.wanted is not None
        traffic, ask = self.traffic, self.wanted
        fate = self.sender.fate(self.number)
        if fate == "late":
            traffic.budget.withdraw(ask.ticket, traffic.now)
            self.ask()
            return
        arrives = traffic.now + traffic.dice.randint(0, self.sender.transit)
        tokens = self.sender.actual(ask.tokens)
        traffic.arrivals.append(Arrival(arrives, tokens, ask.tenant, ask.inputs))
        if fate != "die":
            traffic.at(arrives + self.sender.latency, lambda: self.end(ask, fate, tokens))

    def end(self, ask: Ask, fate: str, tokens: int) -> None:
        budget, now = self.traffic.budget, self.traffic.now
        if fate == "lost":
            budget.lose(ask.ticket)
        else:
            budget.settle(ask.ticket, tokens, now)
        self.wanted = None
        self.ask()


def fullest(arrivals: Sequence[Arrival], window: int) -> tuple[int, int, int]:
    """Most requests, most tokens and most texts in any window, wherever it begins."""
    most = inside = (0, 0, 0)
    first = 0
    for arrival in arrivals:
        inside = _plus(inside, arrival, 1)
        while arrivals[first].time <= arrival.time - window:
            inside = _plus(inside, arrivals[first], -1)
            first += 1
        most = (max(most[0], inside[0]), max(most[1], inside[1]), max(most[2], inside[2]))
    return most


def _plus(counts: tuple[int, int, int], arrival: Arrival, sign: int) -> tuple[int, int, int]:
    requests, tokens, inputs = counts
    return requests + sign, tokens + sign * arrival.tokens, inputs + sign * arrival.inputs


def emptiest(
    arrivals: Sequence[Arrival], window: int, begin: int, end: int
) -> tuple[int, int, int]:
    """Fewest requests, tokens and texts in any window that lies between two times.

    It begins just after an arrival, or at the beginning: any other window holds as much or more.
    """
    starts = [begin, *[a.time + 1 for a in arrivals if begin <= a.time < end - window]]
    inside = [[a for a in arrivals if start <= a.time < start + window] for start in starts]
    return (
        min(map(len, inside)),
        min(sum(a.tokens for a in some) for some in inside),
        min(sum(a.inputs for a in some) for some in inside),
    )
