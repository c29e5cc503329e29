"""How sure a difference is: bootstrap intervals, the same for the same numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_RESAMPLES = 2_000
# Draws at once: 8 MB.
_CELLS = 2**20


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean (Efron and Tibshirani 1993, section 13.3).

    Deterministic: 2,000 resamples from a fixed seed.

    Args:
        values: at least one; of paired measurements their differences.
    """
    sample = np.asarray(values, np.float64)
    dice = np.random.default_rng(len(sample))
    rows = max(1, min(_RESAMPLES, _CELLS // len(sample)))
    means = [
        sample[dice.integers(len(sample), size=(min(rows, _RESAMPLES - at), len(sample)))].mean(1)
        for at in range(0, _RESAMPLES, rows)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)
