"""The gate of labelled queries: are the documents found that people judged relevant?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from embedmill.bootstrap import mean_interval
from embedmill.embedder import Vectors
from embedmill.gate import GateResult, verdict
from embedmill.gates.subject import Subject, why_no_queries
from embedmill.judgements import LabelledQueries, questions_of
from embedmill.plain_numbers import number_of
from embedmill.ranking import distinct, ndcg, recall, reciprocal_rank

_DEPTH = 100
_SCORES: Mapping[str, Callable[[Sequence[str], Mapping[str, int]], float]] = {
    "ndcg_at_10": lambda ranking, grades: ndcg(ranking, grades, 10),
    "recall_at_10": lambda ranking, grades: recall(ranking, grades, 10),
    "recall_at_100": lambda ranking, grades: recall(ranking, grades, _DEPTH),
    "mrr_at_10": lambda ranking, grades: reciprocal_rank(ranking, grades, 10),
}


def labelled_gate(subject: Subject, published: Subject | None) -> GateResult:
    """Labelled queries find their documents, as well as in the published version.

    Raises:
        SettingsError: the files cannot be used.
    """
    name, limits = "queries", subject.settings.gates
    labels = questions_of(limits)
    if labels is None:
        return GateResult(
            name, "not-applicable", message="gates.queries and gates.qrels name no files"
        )
    now = _scores(subject, labels)
    figures: dict[str, float | int | str] = {"queries": len(labels.texts), **_means(now)}
    thresholds: dict[str, float | int | str] = {"min_ndcg": limits.min_ndcg}
    score = float(figures["ndcg_at_10"])
    good = score >= limits.min_ndcg
    message = f"nDCG@10 {score:.4f} over {number_of(len(labels.texts), 'query', 'queries')}"
    if not figures["recall_at_100"]:
        message += "; nothing judged is among the first 100: are the documents' ids the index's?"
    if not good:
        message += f", at least {limits.min_ndcg} is asked for"
    if published is not None:
        thresholds |= {"min_ndcg_delta": limits.min_ndcg_delta, "decide_by": limits.decide_by}
        reason = why_no_queries(published)
        if reason:
            message += f"; not compared with {published.version.name}: {reason}"
        else:
            compared = _compared(now, _scores(published, labels))
            figures |= compared
            by = "delta" if limits.decide_by == "mean" else "delta_low"
            good = good and compared[by] >= limits.min_ndcg_delta
            message += (
                f"; {compared['delta']:+.4f} ({compared['delta_low']:+.4f} to "
                f"{compared['delta_high']:+.4f}) against {published.version.name}, at least "
                f"{limits.min_ndcg_delta:+} is asked for"
            )
    return GateResult(name, verdict(good=good), figures, thresholds, message)


def _scores(subject: Subject, labels: LabelledQueries) -> Mapping[str, list[float]]:
    """Every score of every query; a query that cannot be embedded finds nothing."""
    found: dict[str, list[float]] = {name: [] for name in _SCORES}
    vectors = subject.queries(list(labels.texts.values()))
    for query, vector in zip(labels.texts, vectors, strict=True):
        ranking = [] if vector is None else documents(subject, vector)
        for name, score in _SCORES.items():
            found[name].append(score(ranking, labels.judged[query]))
    return found


def documents(subject: Subject, vector: Vectors) -> list[str]:
    """The 100 nearest documents, best first, each once.

    Asks for more chunks while several of them are of the same document.
    """
    k = _DEPTH
    while True:
        hits = subject.search(vector, k)
        names = distinct(str(hit.payload["doc_id"]) for hit in hits)
        # Beyond this a few long documents have everything near; they may.
        if len(names) >= _DEPTH or len(hits) < k or k >= 16 * _DEPTH:
            return names[:_DEPTH]
        k *= 2


def _means(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(sum(values) / len(values), 6) for name, values in scores.items()}


def _compared(
    now: Mapping[str, Sequence[float]], before: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    deltas = [a - b for a, b in zip(now["ndcg_at_10"], before["ndcg_at_10"], strict=True)]
    low, high = mean_interval(deltas)
    return {
        **{f"published_{name}": value for name, value in _means(before).items()},
        "delta": round(sum(deltas) / len(deltas), 6),
        "delta_low": round(low, 6),
        "delta_high": round(high, 6),
    }
