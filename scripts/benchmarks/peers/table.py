"""The comparison as a table for a person, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import psutil

from benchmarks.figures import spread
from benchmarks.machine import Measured
from benchmarks.peers.corpus import Corpus
from benchmarks.peers.results import SAME, Result, seconds_of
from embedmill.processors import cpu_name

_MIB = 2**20
_HEADINGS = (
    "",
    "set up",
    "cold, s",
    "unchanged, s",
    "1 % changed, s",
    "cold, processor s",
    "peak memory, MiB",
    "chunks; after the change",
    "tokens seen",
    "chunks cut by the window",
    "least cosine",
)
_KINDS = {
    "ours": "as it comes",
    "variant": "with workers, however little there is to do",
    "default": "as documented",
    "expert": "by an expert",
}


def show_corpus(corpus: Corpus, rounds: int) -> None:
    """Print what was ingested, and where."""
    memory = psutil.virtual_memory().total / 2**30
    print(f"\n{corpus.name}: {corpus.documents:,} documents, {corpus.characters:,} characters; ")
    print(f"1 % changed: {corpus.edits} of them; {rounds} rounds, median (lowest to highest)")
    print(f"{cpu_name()}, {psutil.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, ")
    print(f"Python {platform.python_version()}\n")


def show_table(results: Sequence[Result]) -> None:
    """Print a row for each contender."""
    print(f"| {' | '.join(_HEADINGS)} |\n|{'---|' * len(_HEADINGS)}")
    for result in results:
        assert result.stored is not None
        cells = [
            result.contender.name,
            _KINDS[result.contender.kind],
            _seconds(result.cold),
            _seconds(result.unchanged),
            _seconds(result.changed),
            spread([run.own_cpu_s for run in result.cold], digits=1),
            spread([peak / _MIB for peak in result.peaks], digits=0),
            f"{result.stored.points:,}; {_points(result)}",
            f"{result.tokens:,.0f}",
            f"{result.cut:.0%}",
            f"{result.cosine:.5f}{'' if result.cosine >= SAME else ' (other)'}",
        ]
        print(f"| {' | '.join(cells)} |")


def _points(result: Result) -> str:
    return f"{result.points_after:,}" if result.points_after >= 0 else "not run"


def _seconds(runs: Sequence[Measured]) -> str:
    return spread(seconds_of(runs)) if runs else "keeps no state: as cold"
