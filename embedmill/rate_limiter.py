"""How an embedder keeps to a rate budget: ask before a request, tell what became of it.

.. code-block:: python

    turn = limiter.turn(tokens_of_all_requests, texts_of_them)
    permit = turn.acquire(tokens, texts)      # waits
    try:
        reply = send()
    except RateLimitedError as error:
        pause = permit.throttled(error.retry_after)    # everybody waits; ask again
    except TransientError:
        permit.lost()
    else:
        permit.settle(reply.tokens)
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from embedmill.budget_keeper import BudgetKeeper
from embedmill.counts import RateUse
from embedmill.errors import RateLimitedError, StopRunError, TransientError
from embedmill.rate_budget import NANO, SECOND, Answer, Ask, Limits
from embedmill.stated_limits import UNSTATED, StatedLimits

log = logging.getLogger(__name__)
# Of the transit, for the way from the keeper to the moment of sending; the rest is for the network.
_WAY_HERE = 0.5
# Between two tries to reach whoever keeps the budget.
_LONGEST_PAUSE_S = 30.0
# Of the deadline, for a piece of work that has the limit for itself: replies take time as well.
_IN_TIME = 0.8
_PATIENCE_TO_BEGIN_S = 30.0
_OUT_OF_REACH = "the rate budget is out of reach: %s"
# Permits that came too late in a row; then the next one is used all the same.
_LATE_TRIES = 5
# Requests that take up the tokens of a window at least: larger ones leave more of the limit unused.
_PER_WINDOW = 100


@dataclass(frozen=True, slots=True)
class Holder:
    """How a process asks.

    Attributes:
        tenant: for whom.
        weight: of the tenant.
        hold_s: after so many seconds without an end a request's place is free again.
        patience_s: that a turn waits for its first permit at most.
        deadline_s: of a piece of work, for whoever waits for it.
        share: of what the provider states as the account's limits.
    """

    tenant: str = ""
    weight: int = 1
    hold_s: float = 130.0
    patience_s: float = 600.0
    deadline_s: float = math.inf
    share: float = 1.0


class RateLimiter:
    """One process's access to a budget. For any number of threads."""

    def __init__(
        self,
        keeper: BudgetKeeper,
        limits: Limits,
        holder: Holder,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.keeper = keeper
        self.limits = limits
        self.stated = UNSTATED
        self._set = limits
        self.holder = holder
        self.clock = clock
        self.sleep = sleep
        self._numbers = itertools.count(1)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"
        self._lock = threading.Lock()
        self._use = RateUse()
        self._paid = 0

    def ask(self, ask: Ask) -> Answer:
        """Ask the keeper, again and again while it cannot be reached, as long as there is patience.

        There is less for a turn that was not begun: whoever waits for it can tell of the trouble.

        Raises:
            TransientError: it cannot be reached.
        """
        began, pause = self.clock(), 0.25
        patience = self.holder.patience_s
        if ask.whole:
            patience = min(patience, _PATIENCE_TO_BEGIN_S)
        while True:
            try:
                return self.keeper.ask(ask)
            except TransientError as error:
                if self.clock() - began + pause > patience:
                    raise
                log.warning(_OUT_OF_REACH, error)
            self.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def turn(self, tokens: int = 0, inputs: int = 0) -> Turn:
        """A piece of work of one or more requests, which is finished once it was begun.

        Args:
            tokens: of all its requests: money that is not there for them is not spent on a part.
            inputs: texts of all its requests.

        Raises:
            StopRunError: so much takes longer than the piece of work may.
        """
        self._require_in_time(tokens, self.limits.tokens, "tokens")
        self._require_in_time(inputs, self.limits.inputs, "texts")
        return Turn(self, tokens)

    def _require_in_time(self, amount: int, limit: int | None, what: str) -> None:
        takes = 0.0 if limit is None else amount * self.limits.window / limit / SECOND
        if takes > _IN_TIME * self.holder.deadline_s:
            raise StopRunError(
                f"{amount:,} {what} of one segment take {takes:,.0f} s at {limit:,} {what} a "
                f"minute; a worker that is silent for {self.holder.deadline_s:,.0f} s is replaced",
                code="call-deadline",
                hint=f"set run.call_deadline_s to {math.ceil(2 * takes)}, or embed such segments "
                "through embedding jobs; run.segment_chunks makes new segments smaller",
            )

    def tokens_per_request(self, most: int) -> int:
        """How many tokens a request may have: so few that nearly all of a limit can be used."""
        if self.limits.tokens is None:
            return most
        # Smaller ones would meet the limit of requests first.
        requests = min(self.limits.requests or _PER_WINDOW, _PER_WINDOW)
        return max(1, min(most, self.limits.tokens // requests))

    def inputs_per_request(self, most: int) -> int:
        """How many texts a request may have: so many that full requests use up the limit."""
        limit = self.limits.inputs
        return most if limit is None else limit // -(-limit // most)

    def heed(self, headers: Mapping[str, str]) -> None:
        """Learn the account's limits from a reply: they bind where the settings' are higher."""
        told = self.stated.then(StatedLimits.of(headers).shared(self.holder.share))
        if told == self.stated:
            return
        self.stated = told
        self.limits = limits = self._set.under(told)
        if limits == self._set:
            return
        kept = StatedLimits(
            0 if limits.requests == self._set.requests else limits.requests or 0,
            0 if limits.tokens == self._set.tokens else limits.tokens or 0,
        )
        log.warning(
            "kept to what the provider allows the account: %s; embedder.rate_budget names more, "
            "or no limit",
            kept,
        )
        self.note(RateUse(stated_requests=kept.requests, stated_tokens=kept.tokens))

    def ticket(self) -> str:
        """A name for a request that no other has."""
        return f"{self._name}:{next(self._numbers)}"

    @property
    def name(self) -> str:
        """Of this process and this budget, unlike any other."""
        return self._name

    @property
    def paid(self) -> int:
        """Nanodollars that this process was charged so far."""
        return self._paid

    def note(self, use: RateUse) -> None:
        """Add to what :meth:`take_use` returns."""
        with self._lock:
            self._use += use

    def note_tokens(self, tokens: int) -> None:
        """Add tokens that were charged for, with their price."""
        price = self.limits.price_of(tokens)
        self.note(RateUse(tokens=tokens, dollars=price / NANO))
        with self._lock:
            self._paid += price

    def take_use(self) -> RateUse:
        """What was used since the last call of this."""
        with self._lock:
            use, self._use = self._use, RateUse()
        return use


class Turn:
    """See :meth:`RateLimiter.turn`."""

    def __init__(self, limiter: RateLimiter, tokens: int) -> None:
        self._limiter = limiter
        self._tokens = tokens
        self._since = 0
        self._opened = False
        self._opening = threading.Lock()

    def acquire(self, tokens: int, inputs: int = 1) -> Permit:
        """Wait until a request may be sent.

        Args:
            tokens: of the request: an estimate that is not too low.
            inputs: texts of the request.

        Raises:
            RateLimitedError: the first permit of this turn would take too long; nothing was sent.
            StopRunError: the money of the budget is spent.
            TransientError: whoever keeps the budget cannot be reached.
        """
        if not self._opened:
            # Whether it is begun at all, the first of several threads finds out.
            with self._opening:
                if not self._opened:
                    return self._acquired(tokens, inputs)
        return self._acquired(tokens, inputs)

    def _acquired(self, tokens: int, inputs: int) -> Permit:
        limiter = self._limiter
        ticket = limiter.ticket()
        began, late = limiter.clock(), 0
        while True:
            asked = limiter.clock()
            answer = limiter.ask(self._ask(ticket, tokens, inputs))
            self._since = answer.since
            wait = answer.wait / SECOND
            if answer.why == "money" and not wait:
                raise _out_of_money(limiter.limits)
            if answer.why != "granted":
                self._keep_patience(ticket, limiter.clock() - began, wait)
            if wait:
                limiter.sleep(wait)
            if answer.why != "granted":
                continue
            self._opened = True
            waited = limiter.clock() - began
            if limiter.clock() - (asked + wait) <= self._slack() or late == _LATE_TRIES:
                limiter.note(RateUse(requests=1, waited_s=waited))
                return Permit(limiter, ticket, tokens)
            # It would arrive after the transit: the provider would see too much at once.
            late += 1
            limiter.keeper.withdraw(ticket)

    def _ask(self, ticket: str, tokens: int, inputs: int) -> Ask:
        holder = self._limiter.holder
        return Ask(
            ticket=ticket,
            tokens=tokens,
            inputs=inputs,
            whole=0 if self._opened else max(self._tokens, tokens),
            hold=round(holder.hold_s * SECOND),
            since=self._since,
            tenant=holder.tenant,
            weight=holder.weight,
            holder=self._limiter.name,
            paid=self._limiter.paid,
            stated=self._limiter.stated,
        )

    def _slack(self) -> float:
        return _WAY_HERE * self._limiter.limits.transit / SECOND

    def _keep_patience(self, ticket: str, waited: float, wait: float) -> None:
        """What was begun is finished; what was not, may come back later."""
        if not self._opened and waited + wait > self._limiter.holder.patience_s:
            self._limiter.keeper.withdraw(ticket)
            raise RateLimitedError(
                f"the rate budget permits no request within {self._limiter.holder.patience_s:g} s",
                retry_after=wait,
            )


class Permit:
    """A request that may be sent now; tell its end by exactly one of these methods."""

    def __init__(self, limiter: RateLimiter, ticket: str, tokens: int) -> None:
        self._limiter = limiter
        self._ticket = ticket
        self._tokens = tokens

    def settle(self, tokens: int | None = None) -> None:
        """The reply is here.

        Args:
            tokens: that it says it was charged for; None: it does not say.
        """
        actual = self._tokens if tokens is None else tokens
        with _tolerant():
            self._limiter.keeper.settle(self._ticket, tokens)
        # Afterwards: the budget would learn of it twice if it heard of it in between.
        self._limiter.note_tokens(actual)

    def throttled(self, retry_after: float | None = None) -> float:
        """The provider refused it for the rate: nobody sends anything for a while.

        Args:
            retry_after: seconds that it asks to wait.

        Returns:
            Seconds until anybody may send; :meth:`Turn.acquire` waits them out.
        """
        self._limiter.note(RateUse(throttled=1))
        pause = None if retry_after is None else round(retry_after * SECOND)
        try:
            return self._limiter.keeper.throttle(self._ticket, pause) / SECOND
        except TransientError as error:
            log.warning(_OUT_OF_REACH, error)
            return retry_after or 0.0

    def lost(self) -> None:
        """Nobody knows whether it arrived."""
        with _tolerant():
            self._limiter.keeper.lose(self._ticket)


@contextmanager
def _tolerant() -> Iterator[None]:
    """What was not told ends with the lease; the reply is worth more."""
    try:
        yield
    except TransientError as error:
        log.warning(_OUT_OF_REACH, error)


def _out_of_money(limits: Limits) -> StopRunError:
    assert limits.money is not None
    return StopRunError(
        f"the rate budget's {limits.money / NANO:g} dollars for realtime requests are spent",
        code="dollars",
        hint="raise embedder.rate_budget.dollars and run the same command again: what was paid "
        "for is kept",
    )
