"""The inline executor of real runs: what waits for a provider does so beside everything else."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from embedmill.executor import Call, Done, InlineExecutor, WorkerSpec


class WaitingExecutor(InlineExecutor):
    """Runs calls in this thread, and in threads of their own those that wait most of the time.

    These are the calls of workers that run several at a time. All others take turns, as in the
    executor that it extends: what computes gains nothing from threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = ThreadPoolExecutor(_MOST_CALLS, thread_name_prefix="calls")
        # Two calls may be the first of one worker. Each has a lock of its own: one that is being
        # built may call another through its line, from another thread.
        self._building: dict[tuple[str, int], threading.RLock] = {}
        self._queued: dict[tuple[str, int], deque[Call]] = defaultdict(deque)
        self._running: dict[Future[Done], Call] = {}
        self._starting: list[Future[object]] = []

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """See :meth:`Executor.add_pool`; what is being built for an earlier run is built before."""
        wait(self._starting)
        self._starting.clear()
        # Calls that an earlier run did not get to begin are nobody's.
        for address in [address for address in self._queued if address[0] == pool]:
            del self._queued[address]
        super().add_pool(pool, specs)

    def start(self, pool: str) -> None:
        """See :meth:`Executor.start`: the workers are built beside what goes on.

        A model is loaded while the source is read: 4 % of a first ingest of 1,000 short documents.
        """
        for worker in range(len(self._specs[pool])):
            self._starting.append(self._threads.submit(self._worker, pool, worker))

    def submit(
        self, pool: str, worker: int, method: str, *arguments: object, parts: int = 0
    ) -> int:
        """See :meth:`Executor.submit`."""
        ticket = super().submit(pool, worker, method, *arguments, parts=parts)
        if self._specs[pool][worker].at_a_time > 1:
            self._queued[pool, worker].append(self._calls[pool].pop())
            self._begin()
        return ticket

    def wait(self, timeout_s: float) -> list[Done]:
        """See :meth:`Executor.wait`."""
        return self._ended(0.0) or super().wait(0.0) or self._ended(timeout_s)

    def wait_for_running(self, timeout_s: float) -> list[Done] | None:
        """See :meth:`Executor.wait_for_running`."""
        return self._ended_of_running(timeout_s) if self._running else None

    def replace(self, pool: str, worker: int) -> None:
        """See :meth:`Executor.replace`; calls that run come to their end before."""
        wait([each for each, call in self._running.items() if call.address == (pool, worker)])
        self._calls[pool].extend(self._queued.pop((pool, worker), ()))
        super().replace(pool, worker)

    def close(self) -> None:
        """See :meth:`Executor.close`; calls that run come to their end, for they are paid."""
        self._queued.clear()
        self._threads.shutdown()
        super().close()

    def _worker(self, pool: str, worker: int) -> object:
        with self._building.setdefault((pool, worker), threading.RLock()):
            return super()._worker(pool, worker)

    def _begin(self) -> None:
        """Begin what there is room for."""
        running = Counter(call.address for call in self._running.values())
        for (pool, worker), queued in self._queued.items():
            room = self._specs[pool][worker].at_a_time - running[pool, worker]
            for _ in range(min(room, len(queued))):
                call = queued.popleft()
                self._running[self._threads.submit(self._run, call)] = call

    def _ended(self, timeout_s: float) -> list[Done]:
        ended = self._ended_of_running(timeout_s)
        self._begin()
        return ended

    def _ended_of_running(self, timeout_s: float) -> list[Done]:
        ended = wait(self._running, timeout_s, FIRST_COMPLETED).done
        for each in ended:
            del self._running[each]
        return sorted((each.result() for each in ended), key=lambda done: done.ticket)


# Beside each other, of all workers; what is more waits for a thread.
_MOST_CALLS = 64
