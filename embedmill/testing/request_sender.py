"""A worker that sends requests to an embeddings endpoint as fast as a rate budget permits."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from urllib.parse import urlsplit

from embedmill.budget_keeper import BudgetKeeper
from embedmill.counts import RateUse
from embedmill.rate_budget import Limits
from embedmill.rate_limiter import Holder, Permit, RateLimiter, Turn

# In one piece of work.
_REQUESTS = 8


class RequestSender:
    """Embeds nothing that anybody wants. Plain HTTP: it costs little CPU, many run at once."""

    def __init__(
        self, keeper: BudgetKeeper, limits: Limits, base_url: str, holder: Holder, seed: int
    ) -> None:
        """Connect with the first request.

        Args:
            keeper: of the budget.
            limits: of the budget.
            base_url: of the endpoint, with ``/v1``.
            holder: see ``RateLimiter``.
            seed: of the texts' lengths.
        """
        self._limiter = RateLimiter(keeper, limits, holder)
        address = urlsplit(base_url)
        self._path = f"{address.path}/embeddings"
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
        self._dice = random.Random(seed)  # noqa: S311 - nothing here is a secret
        self._held: list[Permit] = []

    def ready(self) -> None:
        """Nothing: the process has started."""

    def hold(self) -> None:
        """Take a permit, and never say what became of it."""
        self._held.append(self._limiter.turn().acquire(1))

    def send(self, seconds: float, words: tuple[int, ...]) -> RateUse:
        """Send for so many seconds.

        Args:
            seconds: until the last request begins.
            words: of a text, from which one number is drawn each time.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            turn = self._limiter.turn()
            for _ in range(_REQUESTS):
                self._one(turn, self._dice.choice(words))
        return self._limiter.take_use()

    def send_one(self, words: int) -> RateUse:
        """Send one request.

        Args:
            words: of its text.

        Raises:
            RateLimitedError: it would have to wait longer than the holder is patient.
        """
        self._one(self._limiter.turn(), words)
        return self._limiter.take_use()

    def _one(self, turn: Turn, words: int) -> None:
        # A cautious estimate, as those of real texts are.
        permit = turn.acquire(2 * words)
        body = {"model": "text-embedding-3-small", "dimensions": 4, "input": ["word " * words]}
        headers = {"authorization": "Bearer sk-fake", "content-type": "application/json"}
        self._connection.request("POST", self._path, json.dumps(body), headers)
        reply = self._connection.getresponse()
        content = json.loads(reply.read())
        if reply.status == 429:
            permit.throttled(float(reply.headers.get("retry-after", "1")))
            return
        permit.settle(content["usage"]["total_tokens"])


class RequestSenders:
    """Several senders in one process, as workers are several that share a machine.

    Each has a connection and a thread of its own; a process for each would cost more to start than
    all that they send.
    """

    def __init__(
        self, keeper: BudgetKeeper, limits: Limits, base_url: str, holder: Holder, seeds: range
    ) -> None:
        """A sender for each of the seeds; see :class:`RequestSender`."""
        self._senders = [RequestSender(keeper, limits, base_url, holder, seed) for seed in seeds]

    def ready(self) -> None:
        """Nothing: the process has started."""

    def send(self, seconds: float, words: tuple[int, ...]) -> list[RateUse]:
        """What each has used; see :meth:`RequestSender.send`."""
        with ThreadPoolExecutor(len(self._senders)) as threads:
            return list(threads.map(lambda sender: sender.send(seconds, words), self._senders))
