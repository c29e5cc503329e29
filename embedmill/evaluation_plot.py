"""An evaluation as a picture: a hand-written SVG, for reports and for reviews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from embedmill.gate import GateResult

_WIDTH, _LABEL, _BAR, _ROW, _TOP = 760, 190, 420, 44, 64
_NOW, _BEFORE, _LIMIT, _BAD = "#1f6f8b", "#b8c4cc", "#222222", "#b3261e"


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure between 0 and 1, as it is shown.

    Attributes:
        label: for a person.
        now: of the version.
        before: of the published version, or None.
        delta: between them with its interval, or None.
        least: that is asked for, or None.
    """

    label: str
    now: float
    before: float | None = None
    delta: tuple[float, float, float] | None = None
    least: float | None = None


# Gate, figure, label, threshold; the figure of the published version has "published_" before it.
_SHOWN = (
    ("re-embedding", "share", "made again", "min_reembedded"),
    ("self-retrieval", "found_in_ten", "self-retrieval@10", "min_self_retrieval"),
    ("slices", "worst_found_in_ten", "worst slice@10", "min_slice_self_retrieval"),
    ("neighbours", "overlap", "neighbours kept", "min_neighbour_overlap"),
    ("queries", "ndcg_at_10", "nDCG@10", "min_ndcg"),
    ("queries", "recall_at_10", "recall@10", ""),
    ("queries", "recall_at_100", "recall@100", ""),
    ("queries", "mrr_at_10", "MRR@10", ""),
)
# The figures that a delta is of.
_COMPARED = {"found_in_ten", "ndcg_at_10"}


def measures(results: Sequence[GateResult]) -> list[Measure]:
    """What there is to show of an evaluation, in a fixed order."""
    gates = {result.name: result for result in results}
    found = []
    for name, figure, label, threshold in _SHOWN:
        gate = gates.get(name)
        if gate is None or figure not in gate.figures:
            continue
        figures = gate.figures
        before = figures.get(f"published_{figure}")
        delta = None
        if figure in _COMPARED and "delta" in figures:
            low, high = float(figures["delta_low"]), float(figures["delta_high"])
            delta = (float(figures["delta"]), low, high)
        least = float(gate.thresholds[threshold]) if threshold else 0.0
        found.append(
            Measure(
                label,
                float(figures[figure]),
                None if before is None else float(before),
                delta,
                least or None,
            )
        )
    return found


def evaluation_svg(title: str, results: Sequence[GateResult], against: str | None) -> str:
    """Bars of every figure, with what is asked for and what the published version has.

    Args:
        title: names index and version.
        results: of the gates.
        against: name of the published version, or None.
    """
    rows = measures(results)
    failed = [result.name for result in results if not result.passed]
    height = _TOP + _ROW * max(1, len(rows)) + 46
    verdict = f"refused by: {', '.join(failed)}" if failed else "every gate passed"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(16, 26, title, size=17),
        _text(16, 46, verdict, fill=_BAD if failed else _NOW),
        *(part for at, row in enumerate(rows) for part in _bars(row, _TOP + at * _ROW)),
        *_legend(height - 18, against),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _bars(row: Measure, top: int) -> Iterator[str]:
    low = row.least is not None and row.now < row.least
    yield _text(_LABEL - 8, top + 20, row.label, anchor="end")
    yield _bar(top + 4, row.now, _BAD if low else _NOW, 14)
    shown = f"{row.now:.4f}"
    if row.before is not None:
        yield _bar(top + 20, row.before, _BEFORE, 9)
        shown += f"  ({row.before:.4f})"
    if row.delta is not None:
        delta, least, most = row.delta
        yield _text(
            _LABEL + _BAR + 8, top + 31, f"{delta:+.4f} [{least:+.4f}, {most:+.4f}]", size=11
        )
    yield _text(_LABEL + _BAR + 8, top + 16, shown)
    if row.least is not None:
        x = _LABEL + _BAR * row.least
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + 33}" stroke="{_LIMIT}"/>'


def _bar(top: int, value: float, fill: str, height: int) -> str:
    width = _BAR * min(1.0, max(0.0, value))
    return f'<rect x="{_LABEL}" y="{top}" width="{width:.1f}" height="{height}" fill="{fill}"/>'


def _legend(top: int, against: str | None) -> Iterator[str]:
    yield f'<rect x="{_LABEL}" y="{top - 10}" width="12" height="10" fill="{_NOW}"/>'
    yield _text(_LABEL + 18, top, "this version", size=11)
    if against is not None:
        yield f'<rect x="{_LABEL + 110}" y="{top - 10}" width="12" height="10" fill="{_BEFORE}"/>'
        yield _text(_LABEL + 128, top, f"published {against}", size=11)
    x = _LABEL + 240
    yield f'<line x1="{x}" x2="{x}" y1="{top - 11}" y2="{top + 1}" stroke="{_LIMIT}"/>'
    yield _text(x + 8, top, "asked for", size=11)


def _text(
    x: int, y: int, text: str, *, size: int = 13, fill: str = "#222222", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
