"""What to do about a call that failed: replace, retry, isolate or stop."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    StopRunError,
    TransientError,
    WorkerDiedError,
)
from embedmill.executor import Done, Executor

log = logging.getLogger(__name__)
# Deaths of workers without a commit between them that end a run: at least ten, since a preempted
# cluster loses many at once, and three rounds of a whole pool.
MIN_DEATHS = 10
# A transient failure of one call that has lasted through this many tries in a row is not transient.
MAX_TRIES = 8


@dataclass(slots=True)
class FaultPolicy:
    """Counts deaths and tries of a run, in one place.

    Attributes:
        executor: replaces workers.
        clock: monotonic seconds.
    """

    executor: Executor
    clock: Callable[[], float] = time.monotonic
    _deaths_since_commit: int = 0
    _tries: Counter[tuple[str, object]] = field(default_factory=Counter)

    def committed(self) -> None:
        """Something was committed: the cluster works."""
        self._deaths_since_commit = 0

    def worker_died(self, pool: str, worker: int, pool_size: int, error: WorkerDiedError) -> None:
        """Replace a worker.

        Raises:
            StopRunError: too many have died with nothing committed in between.
        """
        log.warning("%s worker %d died (%s); replacing it", pool, worker, error)
        self._replace(pool, worker, pool_size, error)

    def worker_unusable(
        self, pool: str, worker: int, pool_size: int, error: TransientError
    ) -> None:
        """Replace a worker that lives but whose memory no longer agrees with the workspace.

        Where it was only told to go slowly, that is no sign of anything, and does not count.

        Raises:
            StopRunError: too many were replaced with nothing committed in between.
        """
        log.info("%s worker %d begins anew", pool, worker)
        if isinstance(error, RateLimitedError):
            self.executor.replace(pool, worker)
        else:
            self._replace(pool, worker, pool_size, error)

    def _replace(self, pool: str, worker: int, pool_size: int, error: TransientError) -> None:
        self._deaths_since_commit += 1
        if self._deaths_since_commit > max(MIN_DEATHS, 3 * pool_size):
            raise StopRunError(
                f"{self._deaths_since_commit} workers died and nothing was committed in between; "
                f"the last one: {error}",
                code="crash-loop",
                hint="look at the workers' logs; all that was committed is kept",
            )
        self.executor.replace(pool, worker)

    def went_well(self, what: tuple[str, object]) -> None:
        """A call that is made time and again has succeeded: what failed before has passed."""
        self._tries.pop(what, None)

    def wait_before_retry(self, what: tuple[str, object], done: Done) -> float:
        """Decide on a call that failed without its worker dying.

        Args:
            what: stage and key of the call.
            done: its end, with an error.

        Returns:
            The time on :attr:`clock` before which it should not be tried again.

        Raises:
            Exception: the call's own error, when trying again is of no use.
        """
        error = done.error
        if not isinstance(error, TransientError | OutcomeUnknownError):
            assert error is not None
            raise error
        if isinstance(error, RateLimitedError):
            return self.clock() + (error.retry_after or 1.0)
        self._tries[what] += 1
        if self._tries[what] >= MAX_TRIES:
            raise StopRunError(
                f"{what[0]} of {what[1]} failed {MAX_TRIES} times; the last time: {error}",
                code="retries-exhausted",
                hint="see whether what did not answer is there, then run the same command again: "
                "all that was committed is kept",
            ) from error
        log.warning("%s of %s failed, try %d: %s", *what, self._tries[what], error)
        return self.clock() + min(60.0, 0.5 * 2.0 ** self._tries[what])
