"""The rate budget of a run: one worker keeps it, the others ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from embedmill.budget_keeper import LocalKeeper
from embedmill.executor import Line
from embedmill.rate_budget import Answer, Ask, Limits


class RateBudgetWorker(LocalKeeper):
    """Keeps the budget.

    One that takes the place of another permits no burst, so that the minute which it does not know
    of is exceeded by a request at most; what was spent it learns from those who ask.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)


@dataclass(frozen=True, slots=True)
class RunKeeper:
    """The run's budget, as other workers reach it. Picklable.

    What is asked twice, because an answer was lost, is decided once.

    Attributes:
        line: to the worker that keeps it.
    """

    line: Line

    def ask(self, ask: Ask) -> Answer:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        return cast(Answer, self.line.call("ask", ask))

    def settle(self, ticket: str, tokens: int | None) -> None:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        self.line.call("settle", ticket, tokens)

    def throttle(self, ticket: str, retry_after: int | None) -> int:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        return cast(int, self.line.call("throttle", ticket, retry_after))

    def lose(self, ticket: str) -> None:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        self.line.call("lose", ticket)

    def withdraw(self, ticket: str) -> None:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        self.line.call("withdraw", ticket)
