"""A rate budget: who may send what and when, under limits that many share.

Pure: it is told the time and never waits. Times are whole microseconds of one clock, money is whole
nanodollars, so that the same steps can be taken in another language (``rate_budget.lua``).

A permit that was granted may go out at its start, and arrives at the provider within the *transit*
after that; the limits hold in every window of the provider under this assumption alone. A permit is
a lease: a holder that dies gives its place among the concurrent requests back when the lease is
over. What it may have sent counts as sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from embedmill.rate_meter import Meter
from embedmill.stated_limits import UNSTATED, StatedLimits

SECOND, NANO = 10**6, 10**9
# How long ahead of its start a permit is granted at most: whoever asks can wait out the rest by
# itself, and no start is lost because nobody happens to ask. Short where several tenants share, so
# that none holds many starts in advance.
_AHEAD, _AHEAD_SHARED = SECOND // 2, SECOND // 20
# Until another question is worth while: a place among the concurrent requests may be free then.
_SOON = SECOND // 40
# A tenant that has not asked for so long has nothing to send.
_IDLE = SECOND
# After a refusal without a time to wait: doubled by every refusal in a row, up to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = SECOND // 4, 30 * SECOND

Why = Literal["granted", "rate", "cooling", "money"]
# Of requests, tokens and inputs.
Amounts = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """What all holders together may do; None: no limit.

    Attributes:
        requests: in a window.
        tokens: in a window.
        inputs: texts in a window.
        concurrent: requests that are on their way at a time.
        money: nanodollars in all.
        price: nanodollars for a thousand tokens.
        window: microseconds.
        transit: microseconds from a permit's start to its arrival at most.
        ramp: microseconds after a cool-down until everything is as before.
    """

    requests: int | None = None
    tokens: int | None = None
    inputs: int | None = None
    concurrent: int | None = None
    money: int | None = None
    price: int = 0
    window: int = 60 * SECOND
    transit: int = SECOND
    ramp: int = 10 * SECOND

    @property
    def need_totals(self) -> bool:
        """Whether a piece of work has to say beforehand how much it is in all."""
        limits = (self.requests, self.tokens, self.inputs, self.money)
        return any(limit is not None for limit in limits)

    def price_of(self, tokens: int) -> int:
        """Nanodollars."""
        return tokens * self.price // 1000

    def under(self, stated: StatedLimits) -> Self:
        """These limits, or the account's where it has lower ones."""
        return replace(
            self,
            requests=_lower(self.requests, stated.requests),
            tokens=_lower(self.tokens, stated.tokens),
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that somebody wants to send.

    Attributes:
        ticket: name of this request, the same for every time it is asked about.
        tokens: estimate, not too low: an excess is only known afterwards.
        hold: microseconds after its start until its holder counts as dead.
        since: of the first answer to the piece of work that this request is a part of; 0 for the
            first. Older pieces go first, so that what was begun ends.
        inputs: texts of it.
        whole: tokens of all requests of this piece of work; 0: it was begun, and is finished
            whatever it costs.
        tenant: shares with others by weight.
        weight: of the tenant.
        holder: name of the process that asks.
        paid: nanodollars that it was charged so far: a budget that was begun anew in the middle of
            a run learns what was spent from those who live.
        stated: what the provider told this process about the account's limits.
    """

    ticket: str
    tokens: int
    hold: int
    since: int = 0
    inputs: int = 0
    whole: int = 0
    tenant: str = ""
    weight: int = 1
    holder: str = ""
    paid: int = 0
    stated: StatedLimits = UNSTATED


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do about it.

    Attributes:
        why: ``granted``: send it after ``wait``; else ask again then, unless the money is spent.
        wait: microseconds.
        since: for the next :class:`Ask` of the same piece of work.
    """

    why: Why
    wait: int
    since: int


def _lower(limit: int | None, stated: int) -> int | None:
    return limit if not stated else min(stated, limit or stated)


@dataclass(frozen=True, slots=True)
class _Lease:
    until: int
    granted: int
    start: int
    holder: str
    tokens: int
    taken: Amounts
    parts: Amounts


@dataclass(frozen=True, slots=True)
class _Waiting:
    since: int
    until: int
    tenant: str
    weight: int
    cost: int


@dataclass(slots=True)
class _Tenant:
    used: int
    active_until: int


class RateBudget:
    """See the module."""

    def __init__(self, limits: Limits, now: int) -> None:
        self._limits = limits
        self._stated = UNSTATED
        self._requests = Meter(limits.requests, limits.window, now)
        self._tokens = Meter(limits.tokens, limits.window, now)
        self._inputs = Meter(limits.inputs, limits.window, now)
        self._meters = (self._requests, self._tokens, self._inputs)
        self._leases: dict[str, _Lease] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._last_start = now
        self._refusals = 0
        self._cool_since = self._cool_until = now - limits.ramp
        self._successes = 0
        self._paid: dict[str, int] = {}
        self.spent = 0

    def ask(self, ask: Ask, now: int) -> Answer:
        """Decide about a request; about one that was granted as before."""
        self._forget(now)
        since = ask.since or now
        self._learn(ask)
        self._heed(ask.stated)
        if ask.ticket in self._leases:
            return Answer("granted", max(0, self._leases[ask.ticket].start - now), since)
        if ask.whole and not self._affordable(ask.whole):
            # What is on its way may turn out to cost less.
            return Answer("money", _SOON if self._leases else 0, since)
        amounts = self._charged(1, ask.tokens, ask.inputs)
        cost = self._cost(amounts, now)
        tenant = self._tenant(ask.tenant, now)
        ahead = self._ahead(ask, since, tenant.used)
        if now < self._cool_until:
            return self._later(ask, since, now, "cooling", self._cool_until - now, cost)
        places = self._places(now)
        if places is not None and len(self._leases) + len(ahead) >= places:
            return self._later(ask, since, now, "rate", _SOON, cost)
        start = self._start(amounts, now)
        horizon = _AHEAD_SHARED if len(self._tenants) > 1 else _AHEAD
        turn = start + sum(waiting.cost for waiting in ahead) - now
        if turn > horizon:
            # Replies may show that there is more room: whoever is next asks often.
            wait = min(turn - horizon // 2, (len(ahead) + 1) * (horizon // 2))
            return self._later(ask, since, now, "rate", wait, cost)
        self._grant(ask, amounts, start, now)
        return Answer("granted", start - now, since)

    def settle(self, ticket: str, tokens: int | None, now: int) -> None:
        """A reply came.

        Args:
            ticket: of the request.
            tokens: that it was charged for; None: as estimated.
            now: the time.
        """
        lease = self._leases.pop(ticket, None)
        if lease is None:
            return
        actual = lease.tokens if tokens is None else tokens
        self._correct(lease, actual, now)
        known = self._paid.get(lease.holder, 0)
        self._paid[lease.holder] = known + self._limits.price_of(actual)
        if lease.granted >= self._cool_until:
            self._refusals = 0
            self._successes += 1

    def throttle(self, ticket: str, retry_after: int | None, now: int) -> int:
        """The provider refused a request for the rate: nobody sends anything for a while.

        Returns:
            Microseconds until anybody may.
        """
        lease = self._leases.pop(ticket, None)
        if lease is not None:
            self._correct(lease, lease.tokens, now)
        # Requests that were under way together are refused together: that is one refusal.
        if lease is None or lease.granted >= self._cool_since:
            self._refusals += 1
            self._cool_since = now
        pause = min(_FIRST_PAUSE << min(self._refusals - 1, 16), _LONGEST_PAUSE)
        self._cool_until = max(self._cool_until, now + max(retry_after or 0, pause))
        self._successes = 0
        return self._cool_until - now

    def lose(self, ticket: str, now: int = 0) -> None:  # noqa: ARG002 - as the others
        """Nobody knows what became of a request: it counts as sent."""
        self._leases.pop(ticket, None)

    def withdraw(self, ticket: str, now: int) -> None:
        """A permit was not used, or is not wanted any more."""
        self._waiting.pop(ticket, None)
        lease = self._leases.pop(ticket, None)
        if lease is not None:
            self._correct(lease, 0, now, sent=False)

    def _forget(self, now: int) -> None:
        for meter in self._meters:
            meter.forget(now)
        for ticket in [name for name, lease in self._leases.items() if lease.until <= now]:
            del self._leases[ticket]
        for ticket in [name for name, waiting in self._waiting.items() if waiting.until <= now]:
            del self._waiting[ticket]
        for name in [name for name, tenant in self._tenants.items() if tenant.active_until <= now]:
            del self._tenants[name]

    def _learn(self, ask: Ask) -> None:
        known = self._paid.get(ask.holder, 0)
        if ask.paid > known:
            self._paid[ask.holder] = ask.paid
            self.spent += ask.paid - known

    def _heed(self, stated: StatedLimits) -> None:
        """The account's limits bind where they are lower than the settings'; the last word counts.

        Who was not told anything yet takes nothing back.
        """
        told = self._stated.then(stated)
        if told != self._stated:
            self._stated = told
            limits = self._limits.under(told)
            self._requests.keep_to(limits.requests)
            self._tokens.keep_to(limits.tokens)

    def _affordable(self, tokens: int) -> bool:
        money = self._limits.money
        return money is None or self.spent + self._limits.price_of(tokens) <= money

    def _tenant(self, name: str, now: int) -> _Tenant:
        """Who comes back after a pause has no claim to what the others used meanwhile."""
        known = self._tenants.get(name)
        if known is None:
            used = min((tenant.used for tenant in self._tenants.values()), default=0)
            known = self._tenants[name] = _Tenant(used, 0)
        known.active_until = max(known.active_until, now + _IDLE)
        return known

    def _ahead(self, ask: Ask, since: int, used: int) -> list[_Waiting]:
        """Who waits and goes first: older work of the same tenant, tenants that had less."""
        ahead = []
        others: dict[str, int] = {}
        for ticket, waiting in sorted(
            self._waiting.items(), key=lambda item: (item[1].since, item[0])
        ):
            if ticket == ask.ticket:
                continue
            if waiting.tenant == ask.tenant:
                if waiting.since < since:
                    ahead.append(waiting)
                continue
            theirs = others.get(waiting.tenant, self._tenants[waiting.tenant].used)
            if theirs < used:
                ahead.append(waiting)
                others[waiting.tenant] = theirs + max(1, waiting.cost) // waiting.weight
        return ahead

    def _places(self, now: int) -> int | None:
        """How many requests may be on their way: few after a cool-down, then twice as many."""
        if now >= self._cool_until + self._limits.ramp:
            return self._limits.concurrent
        few = 1 + self._successes
        return few if self._limits.concurrent is None else min(few, self._limits.concurrent)

    def _charged(self, requests: int, tokens: int, inputs: int) -> Amounts:
        return (
            self._requests.charged(requests),
            self._tokens.charged(tokens),
            self._inputs.charged(inputs),
        )

    def _cost(self, amounts: Amounts, now: int) -> int:
        """The time that a request takes up: more of it while everybody is careful."""
        pairs = zip(self._meters, amounts, strict=True)
        return self._ramped(max(meter.share(amount) for meter, amount in pairs), now)

    def _ramped(self, share: int, now: int) -> int:
        """Half the rate after a cool-down, all of it at the end of the ramp."""
        ramp, passed = self._limits.ramp, max(0, now - self._cool_until)
        return share if passed >= ramp else share * 2 * ramp // (ramp + passed)

    def _start(self, amounts: Amounts, now: int) -> int:
        start = max(now, self._last_start)
        while True:
            later = start
            for meter, amount in zip(self._meters, amounts, strict=True):
                later = meter.start(later, amount)
            if later == start:
                return start
            start = later

    def _grant(self, ask: Ask, amounts: Amounts, start: int, now: int) -> None:
        self._waiting.pop(ask.ticket, None)
        self._last_start = start
        arrival = start + self._limits.transit
        requests, tokens, inputs = (
            meter.take(start, arrival, amount, self._ramped(meter.share(amount), now))
            for meter, amount in zip(self._meters, amounts, strict=True)
        )
        self._leases[ask.ticket] = _Lease(
            until=start + ask.hold,
            granted=now,
            start=start,
            holder=ask.holder,
            tokens=ask.tokens,
            taken=amounts,
            parts=(requests, tokens, inputs),
        )
        cost = self._cost(amounts, now)
        self._tenants[ask.tenant].used += max(1, cost) // ask.weight
        self.spent += self._limits.price_of(ask.tokens)

    def _later(self, ask: Ask, since: int, now: int, why: Why, wait: int, cost: int) -> Answer:
        until = now + wait + _AHEAD
        tenant = self._tenants[ask.tenant]
        tenant.active_until = max(tenant.active_until, until + _IDLE)
        self._waiting[ask.ticket] = _Waiting(since, until, ask.tenant, ask.weight, cost)
        return Answer(why, wait, since)

    def _correct(self, lease: _Lease, tokens: int, now: int, *, sent: bool = True) -> None:
        requests, _, inputs = lease.taken if sent else (0, 0, 0)
        actual = self._charged(requests, tokens, inputs)
        for meter, part, taken, used in zip(
            self._meters, lease.parts, lease.taken, actual, strict=True
        ):
            meter.change(part, taken, now, used)
        self.spent += self._limits.price_of(tokens) - self._limits.price_of(lease.tokens)
