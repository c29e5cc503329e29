"""Calls in flight: who holds how many, what happens when one ends, who is to blame for a death."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    StopRunError,
    TransientError,
    WorkerDiedError,
)
from embedmill.executor import Done, Executor, Line, WorkerSpec
from pipelines.faults import FaultPolicy

# At most this many calls wait at one worker beside those that it runs: a crash costs no more.
QUEUED_PER_WORKER = 1
# Calls that run when something ends the run may take this long: what they do may have been paid.
_FINISH_S = 20.0
log = logging.getLogger(__name__)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Outstanding:
    address: Address
    life: int
    then: Callable[[Done], None]


class Dispatcher:
    """Submits calls to an executor and hands each end to the stage that asked for it.

    When a worker dies, all calls that it held end with ``WorkerDiedError``, and those that can have
    been running say so: the oldest, or of a worker that runs several at a time any of them. The
    worker is replaced before the first of them is handed on, so that a stage may submit again at
    once.
    """

    def __init__(self, executor: Executor, faults: FaultPolicy) -> None:
        self._executor = executor
        self._faults = faults
        self._outstanding: dict[int, _Outstanding] = {}
        self._ended: deque[Done] = deque()
        self._held: Counter[Address] = Counter()
        self._sizes: dict[str, int] = {}
        self._at_a_time: dict[str, int] = {}
        self._lives: Counter[Address] = Counter()
        self._blamed: dict[tuple[Address, int], frozenset[int]] = {}

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """Declare a pool of workers."""
        self._sizes[pool] = len(specs)
        self._at_a_time[pool] = min((spec.at_a_time for spec in specs), default=1)
        self._executor.add_pool(pool, specs)

    def start(self, pool: str) -> None:
        """See ``Executor.start``."""
        self._executor.start(pool)

    def line(self, pool: str, worker: int) -> Line:
        """See ``Executor.line``."""
        return self._executor.line(pool, worker)

    def size(self, pool: str) -> int:
        """How many workers a pool has."""
        return self._sizes[pool]

    def at_a_time(self, pool: str) -> int:
        """How many calls each worker of a pool runs at a time."""
        return self._at_a_time[pool]

    def call(
        self,
        address: Address,
        method: str,
        *arguments: object,
        then: Callable[[Done], None],
        parts: int = 0,
    ) -> None:
        """Submit a call; ``then`` is called once, from :meth:`step`, however it ends.

        Args:
            address: pool and worker.
            method: of the worker.
            arguments: of the method.
            then: takes the end of the call.
            parts: see ``Executor.submit``.
        """
        ticket = self._executor.submit(*address, method, *arguments, parts=parts)
        self._outstanding[ticket] = _Outstanding(address, self._lives[address], then)
        self._held[address] += 1

    def has_room(self, pool: str, worker: int) -> bool:
        """Whether another call may be queued at this worker."""
        return self._held[pool, worker] < self._at_a_time[pool] + QUEUED_PER_WORKER

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return len(self._outstanding)

    def step(self, timeout_s: float) -> None:
        """Wait for ends and deliver them.

        Raises:
            StopRunError: one of them ends the run; the calls that ran beside it had time to end.
        """
        if not self._ended:
            self._ended.extend(self._executor.wait(timeout_s))
        try:
            self._deliver()
        except StopRunError as error:
            self._finish(str(error))
            raise

    def _deliver(self) -> None:
        while self._ended:
            done = self._ended.popleft()
            call = self._outstanding.pop(done.ticket)
            self._held[call.address] -= 1
            if isinstance(done.error, WorkerDiedError):
                error = self._attributed(done.ticket, call, done.error)
                call.then(replace(done, error=error))
            else:
                call.then(done)

    def _finish(self, why: str) -> None:
        """Let the calls end that run; what they do may have been paid for, and is to be counted."""
        deadline = time.monotonic() + _FINISH_S
        ended: Sequence[Done] | None = ()
        while ended is not None and self._outstanding and time.monotonic() < deadline:
            try:
                self._deliver()
                ended = self._executor.wait_for_running(0.5)
                self._ended.extend(ended or ())
            except EmbedmillError as error:
                # What ends the run, others may meet as well: it is said at the end.
                if str(error) != why:
                    log.warning("while the run ends: %s", error)

    def settle(self, timeout_s: float) -> None:
        """Deliver ends until nothing is in flight, or the time is up."""
        deadline = time.monotonic() + timeout_s
        while self._outstanding and time.monotonic() < deadline:
            self.step(0.5)

    def discard(self, address: Address, error: TransientError) -> None:
        """Replace a worker that lives but whose memory is not to be trusted any more.

        The calls that it still holds end as died, none of them to blame.
        """
        self._blamed[address, self._lives[address]] = frozenset()
        self._lives[address] += 1
        pool, worker = address
        self._faults.worker_unusable(pool, worker, self._sizes[pool], error)

    def ask(self, address: Address, method: str, *arguments: object) -> object:
        """Make one call and wait for its end, delivering others meanwhile.

        Raises:
            Exception: what the call raised.
        """
        answer: list[Done] = []
        self.call(address, method, *arguments, then=answer.append)
        while not answer:
            self.step(1.0)
        if answer[0].error is not None:
            raise answer[0].error
        return answer[0].value

    def ask_again(
        self,
        address: Address,
        method: str,
        *arguments: object,
        sleep: Callable[[float], None],
    ) -> object:
        """:meth:`ask` for what may be asked twice, until it is answered.

        A worker that died is replaced by one that can answer; workers that die again and again, and
        failures that do not pass, end the run by the fault policy.

        Raises:
            Exception: what the call raised, when asking again is of no use.
        """
        what = (method.replace("_", " "), "{} worker {}".format(*address))
        while True:
            try:
                answer = self.ask(address, method, *arguments)
            except WorkerDiedError:
                continue
            except (TransientError, OutcomeUnknownError) as error:
                again = self._faults.wait_before_retry(what, Done(0, error=error))
                sleep(max(0.0, again - self._faults.clock()))
            else:
                self._faults.went_well(what)
                return answer

    def _attributed(
        self, ticket: int, call: _Outstanding, error: WorkerDiedError
    ) -> WorkerDiedError:
        life = (call.address, call.life)
        pool, worker = call.address
        if life not in self._blamed:
            held = {t for t, c in self._outstanding.items() if (c.address, c.life) == life}
            held.add(ticket)
            self._blamed[life] = frozenset(held if self._at_a_time[pool] > 1 else [min(held)])
            self._lives[call.address] += 1
            self._faults.worker_died(pool, worker, self._sizes[pool], error)
        running = error.running and ticket in self._blamed[life]
        return WorkerDiedError(str(error), running=running, code=error.code)
