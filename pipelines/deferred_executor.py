"""An executor that starts when it is needed: a refused run does not wait for Ray first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from embedmill.executor import Done, Executor, Line, WorkerSpec

T = TypeVar("T")


class DeferredExecutor:
    """Stands for an executor that is made with the first thing asked of it.

    Attributes:
        name: of the executor to come.
    """

    def __init__(self, name: str, make: Callable[[], Executor]) -> None:
        self.name = name
        self._make = make
        self._made: Executor | None = None

    @property
    def _executor(self) -> Executor:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def cores(self) -> int:
        """See :class:`embedmill.executor.Executor`."""
        return self._executor.cores

    @property
    def node_cores(self) -> Sequence[int]:
        """See :class:`embedmill.executor.Executor`."""
        return self._executor.node_cores

    def elsewhere(self, look: Callable[..., T], *arguments: object) -> Mapping[str, T]:
        """See ``Executor.elsewhere``."""
        return self._executor.elsewhere(look, *arguments)

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """See ``Executor.add_pool``."""
        self._executor.add_pool(pool, specs)

    def start(self, pool: str) -> None:
        """See ``Executor.start``."""
        self._executor.start(pool)

    def submit(
        self, pool: str, worker: int, method: str, *arguments: object, parts: int = 0
    ) -> int:
        """See ``Executor.submit``."""
        return self._executor.submit(pool, worker, method, *arguments, parts=parts)

    def wait(self, timeout_s: float) -> list[Done]:
        """See ``Executor.wait``."""
        return self._executor.wait(timeout_s)

    def wait_for_running(self, timeout_s: float) -> list[Done] | None:
        """See ``Executor.wait_for_running``."""
        return self._executor.wait_for_running(timeout_s)

    def line(self, pool: str, worker: int) -> Line:
        """See ``Executor.line``."""
        return self._executor.line(pool, worker)

    def replace(self, pool: str, worker: int) -> None:
        """See ``Executor.replace``."""
        self._executor.replace(pool, worker)

    def close(self) -> None:
        """See ``Executor.close``; what never started needs no end."""
        if self._made is not None:
            self._made.close()
