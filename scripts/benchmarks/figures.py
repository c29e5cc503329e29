"""Numbers for a person: medians with their spread, and the command that gives them again."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Sequence


def spread(values: Sequence[float], unit: str = "", digits: int = 2) -> str:
    """Median, and the lowest and highest where there are several."""
    text = f"{statistics.median(values):,.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    return f"{text} {unit}".rstrip()


def rerun() -> str:
    """The line that repeats this measurement."""
    verb = (sys.modules["__main__"].__spec__ or sys).name
    verb = verb.removeprefix("benchmarks.").removesuffix(".__main__")
    return shlex.join(["scripts/bench", verb, *sys.argv[1:]])


def verdict(*, good: bool, what: str) -> int:
    """Print whether the limit is kept; return the exit status."""
    print(f"\n{'kept' if good else 'NOT KEPT'}: {what}\nagain: {rerun()}")
    return 0 if good else 1


def no_verdict(others: float, maximum: float) -> int:
    """Print that the machine was too busy to say anything; return the exit status for that."""
    print(f"\nNO VERDICT: other processes used {others:.2f} cores, more than {maximum:g}; ", end="")
    print(f"try again on a quiet machine\nagain: {rerun()}")
    return 3
