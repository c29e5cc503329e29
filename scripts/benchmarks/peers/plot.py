"""The comparison as a picture: bars of seconds, in SVG written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.peers.corpus import Corpus
from benchmarks.peers.results import Result, median_s

_WIDTH, _LABEL, _BAR, _TOP, _ROW = 760, 180, 440, 64, 64
_COLOURS = {"cold": "#1f6f8b", "unchanged": "#7fb069", "1 % changed": "#e6aa68"}


def comparison_svg(results: Sequence[Result], corpus: Corpus) -> str:
    """Three bars for each contender: cold, unchanged, 1 % changed; the scale is linear."""
    longest = max(median_s(result.cold) for result in results)
    height = _TOP + _ROW * len(results) + 40
    title = f"Seconds to ingest {corpus.documents:,} documents: {corpus.name}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(16, 26, title, size=17),
        _text(16, 46, "start of the process to its end, medians; shorter is better", fill="#555"),
        *(
            part
            for at, result in enumerate(results)
            for part in _bars(result, _TOP + at * _ROW, longest)
        ),
        *_legend(height - 16),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _bars(result: Result, top: int, longest: float) -> Iterator[str]:
    yield _text(_LABEL - 8, top + 30, result.contender.name, anchor="end")
    runs = (result.cold, result.unchanged, result.changed)
    for at, (name, some) in enumerate(zip(_COLOURS, runs, strict=True)):
        y = top + 4 + at * 18
        if not some:
            yield _text(_LABEL + 4, y + 12, "keeps no state: as cold", size=11, fill="#777")
            continue
        seconds = median_s(some)
        width = max(1.0, _BAR * seconds / longest)
        yield (
            f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="14" fill="{_COLOURS[name]}"/>'
        )
        yield _text(_LABEL + int(width) + 6, y + 12, f"{seconds:.1f}", size=11)


def _legend(top: int) -> Iterator[str]:
    for at, (name, colour) in enumerate(_COLOURS.items()):
        x = _LABEL + at * 120
        yield f'<rect x="{x}" y="{top - 10}" width="12" height="10" fill="{colour}"/>'
        yield _text(x + 18, top, name, size=11)


def _text(
    x: int, y: int, text: str, *, size: int = 13, fill: str = "#222", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
