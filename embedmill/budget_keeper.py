"""Who keeps a rate budget for many; this process, in the simplest case."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from embedmill.rate_budget import SECOND, Answer, Ask, Limits, RateBudget


class BudgetKeeper(Protocol):
    """Holds a rate budget for many; any thread may call it.

    Every method may raise :class:`~embedmill.errors.TransientError` when it cannot be reached.
    """

    def ask(self, ask: Ask) -> Answer:
        """See :meth:`RateBudget.ask`."""
        ...

    def settle(self, ticket: str, tokens: int | None) -> None:
        """See :meth:`RateBudget.settle`."""
        ...

    def throttle(self, ticket: str, retry_after: int | None) -> int:
        """See :meth:`RateBudget.throttle`."""
        ...

    def lose(self, ticket: str) -> None:
        """See :meth:`RateBudget.lose`."""
        ...

    def withdraw(self, ticket: str) -> None:
        """See :meth:`RateBudget.withdraw`."""
        ...


class LocalKeeper:
    """A rate budget in this process."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._budget = RateBudget(limits, self._now())

    def _now(self) -> int:
        return round(self._clock() * SECOND)

    def ask(self, ask: Ask) -> Answer:
        """See :class:`BudgetKeeper`."""
        with self._lock:
            return self._budget.ask(ask, self._now())

    def settle(self, ticket: str, tokens: int | None) -> None:
        """See :class:`BudgetKeeper`."""
        with self._lock:
            self._budget.settle(ticket, tokens, self._now())

    def throttle(self, ticket: str, retry_after: int | None) -> int:
        """See :class:`BudgetKeeper`."""
        with self._lock:
            return self._budget.throttle(ticket, retry_after, self._now())

    def lose(self, ticket: str) -> None:
        """See :class:`BudgetKeeper`."""
        with self._lock:
            self._budget.lose(ticket)

    def withdraw(self, ticket: str) -> None:
        """See :class:`BudgetKeeper`."""
        with self._lock:
            self._budget.withdraw(ticket, self._now())
