"""A rate budget that a Redis server keeps for many clusters; each step is one atomic script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from embedmill.errors import RefusedError, StopRunError, TransientError
from embedmill.rate_budget import Answer, Ask, Limits
from embedmill.rate_budget_settings import RedisSettings
from embedmill.redaction import redacted
from embedmill.settings_file import resolve_secret

# Silence after which the server counts as out of reach; a step takes it less than a millisecond.
_TIMEOUT_S = 5.0
_SCRIPT = "rate_budget.lua"


class RedisKeeper:
    """Asks the server; its clock is the only one. For any number of threads."""

    def __init__(self, settings: RedisSettings, name: str, limits: Limits) -> None:
        """Connect with the first question.

        Args:
            settings: of the server.
            name: of the budget.
            limits: the same for all who share it.
        """
        self._server = f"{settings.host}:{settings.port}"
        # Braces: all keys of a budget lie on one node of a Redis cluster.
        self._key = f"embedmill:rate:{{{name}}}"
        known = asdict(limits)
        self._limits = json.dumps({key: known[key] or 0 for key in known})
        self._client = redis.Redis(
            host=settings.host,
            port=settings.port,
            db=settings.database,
            password=resolve_secret(settings.password) if settings.password else None,
            ssl=settings.tls,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            decode_responses=True,
            # Once more at once, for connections that idled too long; the caller has patience.
            retry=Retry(NoBackoff(), 1),
        )
        source = resources.files("embedmill").joinpath(_SCRIPT).read_text("utf-8")
        self._script = self._client.register_script(source)

    def check(self) -> None:
        """Make sure that the server answers, before anything rests on it.

        Raises:
            RefusedError: it does not.
            StopRunError: it does not let us in.
        """
        try:
            self.lose("")
        except TransientError as error:
            raise RefusedError(
                f"the rate budget is out of reach: {error}",
                code="redis",
                hint="start the server, or change embedder.rate_budget.shared_by",
            ) from error

    def ask(self, ask: Ask, now: int = 0) -> Answer:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        why, wait, since = self._do("ask", asdict(ask), now)
        return Answer(why, wait, since)

    def settle(self, ticket: str, tokens: int | None, now: int = 0) -> None:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        self._do("settle", {"ticket": ticket, "tokens": -1 if tokens is None else tokens}, now)

    def throttle(self, ticket: str, retry_after: int | None, now: int = 0) -> int:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        given = {"ticket": ticket, "retry_after": retry_after or 0}
        return cast(int, self._do("throttle", given, now)[0])

    def lose(self, ticket: str, now: int = 0) -> None:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        self._do("lose", {"ticket": ticket}, now)

    def withdraw(self, ticket: str, now: int = 0) -> None:
        """See :class:`~embedmill.budget_keeper.BudgetKeeper`."""
        self._do("withdraw", {"ticket": ticket}, now)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _do(self, deed: str, given: dict[str, Any], now: int) -> Sequence[Any]:
        """Take a step.

        Args:
            deed: name of the step.
            given: its arguments.
            now: microseconds; 0: by the server's clock, as it has to be where many ask.

        Raises:
            TransientError: the server does not answer, or does not work.
            StopRunError: it does not let us in.
        """
        try:
            reply = self._script(
                keys=[self._key], args=[deed, self._limits, json.dumps(given), now]
            )
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            raise StopRunError(
                redacted(f"Redis at {self._server} refuses us: {error}"),
                code="credentials",
                hint="check embedder.rate_budget.shared_by.password",
            ) from error
        except redis.RedisError as error:
            raise TransientError(
                redacted(f"Redis at {self._server}: {error}"), code="redis"
            ) from error
        return cast(Sequence[Any], reply)
