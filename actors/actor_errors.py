"""What Ray's errors mean for a run."""

from __future__ import annotations

import re
from collections.abc import Callable

from ray import exceptions as ray_errors

from embedmill.errors import EmbedmillError, StopRunError, WorkerDiedError

Address = tuple[str, int]
# As Ray's errors name the process of a dead actor.
_PID = re.compile(r"\bpid: (\d+)")


def cause_of(error: ray_errors.RayTaskError) -> Exception:
    """The worker's own exception, or what it means that an argument was lost."""
    cause = error.cause
    if isinstance(cause, EmbedmillError):
        return cause
    if isinstance(cause, ray_errors.RayError):
        return WorkerDiedError(f"an argument was lost: {type(cause).__name__}", running=False)
    failed: Exception = error.as_instanceof_cause()  # type: ignore[no-untyped-call]
    return failed


def cannot_start(address: Address, error: Exception) -> StopRunError:
    """What makes a worker was not understood where it runs: a module is missing there."""
    pool, worker = address
    last_line = (str(error).strip().splitlines() or [""])[-1]
    return StopRunError(
        f"{pool} worker {worker} cannot start: {last_line}",
        code="worker-start",
        hint="every node needs the libraries that this one has; scripts/submit sends the code",
    )


def died(
    address: Address, process: int | None, error: Exception, last_words: Callable[[int], str]
) -> str:
    """How a worker died, with the last words of its process."""
    pool, worker = address
    lines = str(error).strip().splitlines() or [""]
    # A worker that died while it was built may not have said yet which process it is; Ray has.
    named = _PID.search(str(error))
    pid = process if process is not None else int(named[1]) if named else None
    said = last_words(pid) if pid is not None else ""
    return f"{pool} worker {worker}: {type(error).__name__}: {lines[0]}{said and f'; {said}'}"
