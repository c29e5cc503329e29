"""Whether the product is as much better as it wants to be."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.figures import spread, verdict
from benchmarks.machine import Measured
from benchmarks.peers.results import SAME, Result, median_s


def judge(results: Sequence[Result], goal: float) -> int:
    """Print every ratio with its spread and whether it is enough; return the exit status."""
    ours = next(result for result in results if result.contender.kind == "ours")
    defaults = [result for result in results if result.contender.kind == "default"]
    experts = [result for result in results if result.contender.kind == "expert"]
    theirs = [*defaults, *experts]
    print()
    kept = [
        _faster("cold, the fastest default", ours.cold, [each.cold for each in defaults], goal),
        _faster("cold, the expert's", ours.cold, [each.cold for each in experts], 1.0),
        # Without state, a rerun is a cold run.
        _faster("unchanged", ours.unchanged, [each.unchanged or each.cold for each in theirs], 1.0),
        _faster("1 % changed", ours.changed, [each.changed or each.cold for each in theirs], 1.0),
        _smaller(ours, theirs),
        ours.cosine >= SAME,
    ]
    print(f"  least cosine to float32: {ours.cosine:.5f}, at least {SAME} is wanted")
    return verdict(good=all(kept), what="the goals beside the other frameworks")


def _faster(
    name: str, ours: Sequence[Measured], others: Sequence[Sequence[Measured]], goal: float
) -> bool:
    """Whether the median is that many times as fast as the fastest of the others."""
    if not others:
        return True
    best = min(others, key=median_s)
    ratio = median_s(best) / median_s(ours)
    # Who was measured once has one.
    rounds = [other.seconds / mine.seconds for other, mine in zip(best, ours, strict=False)]
    print(f"  {name}: {ratio:.2f} times as fast; round by round {spread(rounds)}; ", end="")
    print(f"at least {goal:g} is wanted")
    return ratio >= goal


def _smaller(ours: Result, theirs: Sequence[Result]) -> bool:
    if not theirs:
        return True
    middle = statistics.median(statistics.median(each.peaks) for each in theirs)
    ratio = statistics.median(ours.peaks) / middle
    print(f"  peak memory: {ratio:.2f} of the median of theirs; at most 1 is wanted")
    return ratio <= 1.0
