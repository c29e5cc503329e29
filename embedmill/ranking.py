"""How good a ranking is, by the conventions of trec_eval and BEIR."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence


def distinct(names: Iterable[str]) -> list[str]:
    """Names in order, each where it stands first: the best chunk speaks for its document."""
    return list(dict.fromkeys(names))


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Normalised discounted cumulative gain of the first ``k``, as trec_eval's ``ndcg_cut``.

    The gain is the grade itself; what is not judged, or judged below 1, gains nothing; the ideal
    ranking is that of all judged documents.

    Args:
        ranking: document ids, best first, each once.
        grades: of the judged documents.
        k: the cut.

    Returns:
        Between 0 and 1; 0 where nothing is relevant.
    """
    ideal = _discounted(sorted(grades.values(), reverse=True)[:k])
    found = _discounted([grades.get(name, 0) for name in ranking[:k]])
    return found / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Share of the relevant documents (grade 1 or more) among the first ``k``."""
    relevant = {name for name, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """1 over the place of the first relevant document among the first ``k``; 0 without one."""
    places = (place for place, name in enumerate(ranking[:k], 1) if grades.get(name, 0) > 0)
    return 1 / next(places, math.inf)


def _discounted(gains: Sequence[int]) -> float:
    return sum(max(gain, 0) / math.log2(place + 2) for place, gain in enumerate(gains))
