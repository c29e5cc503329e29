"""The contract of an executor, and the one that needs no cluster.

An executor runs methods of workers and hands back what they return; it decides nothing. Workers are
plain classes; each is built where it runs, from a picklable spec, when its first call arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from embedmill.closing import let_go
from embedmill.errors import EmbedmillError, WorkerDiedError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How to build one worker, and what it needs.

    Attributes:
        factory: the worker's class.
        arguments: of its constructor; small and picklable.
        cpus: cores to reserve (bookkeeping, may be a fraction).
        gpus: GPUs to reserve, may be a fraction.
        serves: other workers call it through a :class:`Line`. When its process dies, another is
            built and their calls are repeated: they must bear that.
        at_a_time: calls that it can run at a time, each in a thread of its own.
    """

    factory: Callable[..., object]
    arguments: tuple[Any, ...]
    cpus: float = 0.0
    gpus: float = 0.0
    serves: bool = False
    at_a_time: int = 1


class Line(Protocol):
    """Calls a worker from within another one; picklable where workers have processes."""

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - what it returns
        """Call a method of the worker, and wait for what it returns.

        Raises:
            TransientError: it does not answer; the call may have run.
            EmbedmillError: what the method raised.
        """
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """The end of one call.

    Attributes:
        ticket: that ``submit`` returned.
        value: what the method returned; with ``parts`` the first element of its list.
        parts: the other elements, as opaque things that only a later call may read.
        error: what the method raised, or :class:`WorkerDiedError`; None when it returned.
    """

    ticket: int
    value: Any = None
    parts: tuple[Any, ...] = ()
    error: Exception | None = None


class Executor(Protocol):
    """Runs calls on workers of named pools. One thread uses it.

    Attributes:
        name: ``inline`` or ``ray``.
        cores: that its workers share; 0 when they take turns in one thread.
        node_cores: the same, of each machine; a worker's cores are all of one.
    """

    name: str

    @property
    def cores(self) -> int:
        """See the class."""
        ...

    @property
    def node_cores(self) -> Sequence[int]:
        """See the class."""
        ...

    def elsewhere(self, look: Callable[..., T], *arguments: object) -> Mapping[str, T]:
        """Run a function once on every machine but this one, before there are workers.

        Returns:
            What it returned, by machine. A machine that does not answer is left out: it may be
            leaving the cluster.
        """
        ...

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """Declare a pool; its workers start with their first call.

        Workers of an earlier pool of this name are ended: they belong to an earlier run.
        """
        ...

    def start(self, pool: str) -> None:
        """Have the workers of a pool start now where they have processes, and do not wait for it.

        What goes wrong with it shows in a worker's first call.
        """
        ...

    def submit(
        self, pool: str, worker: int, method: str, *arguments: object, parts: int = 0
    ) -> int:
        """Queue a call on one worker.

        Calls of one worker run in the order of submission; where it runs several at a time, in
        about that order.

        Args:
            pool: name of the pool.
            worker: position in the pool.
            method: of the worker.
            arguments: picklable, or parts of an earlier call.
            parts: the method returns a list of ``parts + 1`` elements; all but the first stay
                where they are.

        Returns:
            A ticket.
        """
        ...

    def wait(self, timeout_s: float) -> list[Done]:
        """Return calls that ended, at least one unless the time is up or nothing is queued."""
        ...

    def wait_for_running(self, timeout_s: float) -> list[Done] | None:
        """Return calls that ended, of those that run beside this thread; None when none does.

        For a run that ends: where the executor decides, it begins no other call.
        """
        ...

    def line(self, pool: str, worker: int) -> Line:
        """A line to a worker that serves others."""
        ...

    def replace(self, pool: str, worker: int) -> None:
        """Let a new worker take the place of one that died; its queued calls died with it."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a worker of this process."""

    ticket: int
    pool: str
    worker: int
    method: str
    arguments: tuple[Any, ...]
    parts: int

    @property
    def address(self) -> tuple[str, int]:
        """Pool and worker."""
        return self.pool, self.worker


@dataclass(frozen=True, slots=True)
class InlineLine:
    """A line to a worker of this process.

    Attributes:
        worker: builds it, or says who it is.
    """

    worker: Callable[[], object]

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - what it returns
        """See :class:`Line`."""
        return getattr(self.worker(), method)(*arguments)


@dataclass(slots=True)
class InlineExecutor:
    """Runs every call in this thread, one at a time: deterministic, starts at once.

    Later stages go first, so that little is in flight.
    """

    name: str = "inline"
    _specs: dict[str, list[WorkerSpec]] = field(default_factory=dict)
    _workers: dict[tuple[str, int], object] = field(default_factory=dict)
    _calls: dict[str, deque[Call]] = field(default_factory=dict)
    _dropped: list[Done] = field(default_factory=list)
    _tickets: int = 0

    @property
    def cores(self) -> int:
        """See :class:`Executor`."""
        return 0

    @property
    def node_cores(self) -> Sequence[int]:
        """See :class:`Executor`."""
        return ()

    def elsewhere(self, look: Callable[..., T], *arguments: object) -> Mapping[str, T]:  # noqa: ARG002
        """See :meth:`Executor.elsewhere`; there is no other machine."""
        return {}

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """See :meth:`Executor.add_pool`."""
        self._end([key for key in self._workers if key[0] == pool])
        self._specs[pool] = list(specs)
        self._calls[pool] = deque()

    def start(self, pool: str) -> None:
        """See :meth:`Executor.start`; there is nothing to be ahead of."""

    def submit(
        self, pool: str, worker: int, method: str, *arguments: object, parts: int = 0
    ) -> int:
        """See :meth:`Executor.submit`."""
        self._tickets += 1
        call = Call(self._tickets, pool, worker, method, arguments, parts)
        self._calls[pool].append(call)
        return self._tickets

    def wait(self, timeout_s: float) -> list[Done]:  # noqa: ARG002 - nothing to wait for here
        """See :meth:`Executor.wait`."""
        if self._dropped:
            dropped, self._dropped = self._dropped, []
            return dropped
        for pool in reversed(self._calls):
            if self._calls[pool]:
                return [self._run(self._calls[pool].popleft())]
        return []

    def wait_for_running(self, timeout_s: float) -> list[Done] | None:  # noqa: ARG002 - none runs
        """See :meth:`Executor.wait_for_running`."""
        return None

    def _run(self, call: Call) -> Done:
        try:
            returned = getattr(self._worker(call.pool, call.worker), call.method)(*call.arguments)
        except EmbedmillError as error:
            return Done(call.ticket, error=error)
        if not call.parts:
            return Done(call.ticket, returned)
        return Done(call.ticket, returned[0], tuple(returned[1:]))

    def _worker(self, pool: str, worker: int) -> object:
        key = (pool, worker)
        if key not in self._workers:
            spec = self._specs[pool][worker]
            self._workers[key] = spec.factory(*spec.arguments)
        return self._workers[key]

    def line(self, pool: str, worker: int) -> Line:
        """See :meth:`Executor.line`."""
        return InlineLine(lambda: self._worker(pool, worker))

    def replace(self, pool: str, worker: int) -> None:
        """See :meth:`Executor.replace`."""
        self._end([key for key in self._workers if key == (pool, worker)])
        for call in [call for call in self._calls[pool] if call.worker == worker]:
            self._calls[pool].remove(call)
            error = WorkerDiedError(f"{pool} worker {worker} was replaced", running=False)
            self._dropped.append(Done(call.ticket, error=error))

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        self._end(list(self._workers))

    def _end(self, keys: Sequence[tuple[str, int]]) -> None:
        for key in keys:
            let_go(self._workers.pop(key))
