"""Finding the text that makes a batch fail."""

from __future__ import annotations

from collections.abc import Callable

from embedmill.errors import PermanentError, TransientError


def failures_by_halving(
    rows: list[int], compute: Callable[[list[int]], PermanentError | TransientError | None]
) -> dict[int, PermanentError]:
    """Compute all rows, halving what fails until the cause is alone; its neighbours succeed.

    Args:
        rows: computed together as long as nothing fails.
        compute: keeps its results itself and returns why it could not, or None.

    Returns:
        Why rows failed that fail even alone.

    Raises:
        TransientError: one row alone fails for a reason that is not its own (memory).
    """
    failures: dict[int, PermanentError] = {}
    waiting = [rows]
    while waiting:
        part = waiting.pop()
        failure = compute(part) if part else None
        if failure is None:
            continue
        if len(part) > 1:
            waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
        elif isinstance(failure, PermanentError):
            failures[part[0]] = failure
        else:
            raise failure
    return failures
