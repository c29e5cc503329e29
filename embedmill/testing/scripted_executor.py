"""An executor whose accidents and order are scripted: deaths, failures, calls that overtake others.

It runs real or fake workers in this thread, one call at a time, and keeps the promises of
:class:`embedmill.executor.Executor` in the way of actors: calls of one worker run in the order of
submission, a death takes the queued calls along, whoever is replaced is built anew.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from embedmill.errors import EmbedmillError, TransientError, WorkerDiedError
from embedmill.executor import Done, InlineLine, Line, WorkerSpec

Address = tuple[str, int]
# What becomes of a call: the worker dies before or after it did its work, or the call fails with
# ``TransientError`` before or after. "After" is a reply that was lost.
Accident = Literal["die", "die-after", "fail", "fail-after"]

T = TypeVar("T")


class KilledWorker(BaseException):
    """Raised within a worker: its process ends here and now."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as the script sees it.

    Attributes:
        ticket: of the executor.
        pool: name of the pool.
        worker: position in it.
        method: of the worker.
        arguments: of the method.
        turn: how many calls of this pool have run before, from 0.
    """

    ticket: int
    pool: str
    worker: int
    method: str
    arguments: tuple[Any, ...]
    turn: int = 0


@dataclass(frozen=True, slots=True)
class _Queued:
    call: Call
    parts: int


def no_accident(_: Call) -> Accident | None:
    """All goes well."""
    return None


def first_of(_: Sequence[Address]) -> int:
    """The worker with the oldest call goes first."""
    return 0


class ScriptedExecutor:
    """See the module.

    Attributes:
        name: of the executor it stands for.
        log: calls that a worker carried out, in that order; those that failed or died before they
            did anything are left out.
        replaced: workers that were replaced, in that order.
    """

    def __init__(
        self,
        *,
        cores: int = 0,
        name: str = "inline",
        accident: Callable[[Call], Accident | None] = no_accident,
        choose: Callable[[Sequence[Address]], int] = first_of,
    ) -> None:
        """Prepare.

        Args:
            cores: that pool sizes are decided by.
            name: ``inline`` allows stores that live in one process.
            accident: asked before every call.
            choose: asked which of the workers that have calls goes next; any number, taken modulo.
        """
        self.name = name
        self.log: list[Call] = []
        self.replaced: list[Address] = []
        self._cores = cores
        self._accident = accident
        self._choose = choose
        self._specs: dict[str, list[WorkerSpec]] = {}
        self._workers: dict[Address, object] = {}
        self._dead: set[Address] = set()
        self._queues: dict[Address, deque[_Queued]] = defaultdict(deque)
        self._ended: dict[Address, deque[Done]] = defaultdict(deque)
        self._turns: Counter[str] = Counter()
        self._tickets = 0

    @property
    def cores(self) -> int:
        """See ``Executor``."""
        return self._cores

    @property
    def node_cores(self) -> Sequence[int]:
        """See ``Executor``."""
        return (self._cores,) if self._cores else ()

    def elsewhere(self, look: Callable[..., T], *arguments: object) -> Mapping[str, T]:  # noqa: ARG002
        """See ``Executor.elsewhere``; there is no other machine."""
        return {}

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """See ``Executor.add_pool``."""
        self._specs[pool] = list(specs)

    def start(self, pool: str) -> None:
        """See ``Executor.start``; workers are made by their first call."""

    def submit(
        self, pool: str, worker: int, method: str, *arguments: object, parts: int = 0
    ) -> int:
        """See ``Executor.submit``; a call to a dead worker dies."""
        self._tickets += 1
        call = Call(self._tickets, pool, worker, method, arguments)
        self._queues[pool, worker].append(_Queued(call, parts))
        if (pool, worker) in self._dead:
            self._bury((pool, worker))
        return self._tickets

    def wait(self, timeout_s: float) -> list[Done]:  # noqa: ARG002 - time is the script's
        """See ``Executor.wait``; one end at a time."""
        ready = [a for a in {**self._ended, **self._queues} if self._ended[a] or self._queues[a]]
        if not ready:
            return []
        ready.sort(key=self._oldest)
        address = ready[self._choose(ready) % len(ready)]
        if not self._ended[address]:
            self._run(address, self._queues[address].popleft())
        return [self._ended[address].popleft()]

    def wait_for_running(self, timeout_s: float) -> list[Done] | None:
        """See ``Executor.wait_for_running``; as with actors, what is queued runs as well."""
        return self.wait(timeout_s) if self._cores else None

    def line(self, pool: str, worker: int) -> Line:
        """See ``Executor.line``; its calls are not the script's."""
        return InlineLine(lambda: self._worker((pool, worker)))

    def replace(self, pool: str, worker: int) -> None:
        """See ``Executor.replace``."""
        address = (pool, worker)
        self.replaced.append(address)
        self._bury(address)
        self._workers.pop(address, None)
        self._dead.discard(address)

    def close(self) -> None:
        """See ``Executor.close``."""
        for worker in self._workers.values():
            close = getattr(worker, "close", None)
            if close is not None:
                close()
        self._workers.clear()

    def _oldest(self, address: Address) -> int:
        if self._ended[address]:
            return self._ended[address][0].ticket
        return self._queues[address][0].call.ticket

    def _run(self, address: Address, queued: _Queued) -> None:
        call = queued.call
        seen = Call(
            call.ticket, call.pool, call.worker, call.method, call.arguments, self._turns[call.pool]
        )
        self._turns[call.pool] += 1
        done = self._outcome(address, seen, queued.parts, self._accident(seen))
        if done is not None:
            self._ended[address].append(done)
            return
        self._queues[address].appendleft(queued)
        self._dead.add(address)
        self._bury(address)

    def _outcome(
        self, address: Address, call: Call, parts: int, accident: Accident | None
    ) -> Done | None:
        """The end of a call; None when its worker died."""
        if accident == "die":
            return None
        if accident == "fail":
            return Done(call.ticket, error=TransientError("scripted: nothing was done"))
        self.log.append(call)
        try:
            done = self._returned(address, call, parts)
        except KilledWorker:
            return None
        except EmbedmillError as error:
            done = Done(call.ticket, error=error)
        if accident == "fail-after":
            done = Done(call.ticket, error=TransientError("scripted: the reply was lost"))
        return None if accident == "die-after" else done

    def _returned(self, address: Address, call: Call, parts: int) -> Done:
        returned = getattr(self._worker(address), call.method)(*call.arguments)
        if not parts:
            return Done(call.ticket, returned)
        return Done(call.ticket, returned[0], tuple(returned[1:]))

    def _worker(self, address: Address) -> object:
        if address not in self._workers:
            pool, worker = address
            spec = self._specs[pool][worker]
            self._workers[address] = spec.factory(*spec.arguments)
        return self._workers[address]

    def _bury(self, address: Address) -> None:
        """All calls of a worker end as died; who was running is for the dispatcher to find out."""
        while self._queues[address]:
            ticket = self._queues[address].popleft().call.ticket
            died = WorkerDiedError(f"scripted: {address[0]} worker {address[1]} died")
            self._ended[address].append(Done(ticket, error=died))
