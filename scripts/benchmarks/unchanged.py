"""A run that finds everything unchanged: how long does it take to see that there is nothing to do?

Ingests the corpus once (words hashed to vectors: the model does not matter here), then runs the
same ingest again, inline and over Ray, and fails when one of them takes longer than the limit.
Starting Ray is shown apart and not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from benchmarks.figures import spread, verdict
from benchmarks.ingesting import (
    Ingest,
    add_corpus,
    corpus_source,
    ingested,
    parser,
    scratch,
    settings_in,
)
from benchmarks.machine import BenchError


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=900)
    add_corpus(made)
    made.add_argument("--maximum", type=float, default=10.0, help="seconds (default %(default)g)")
    made.add_argument("--rounds", type=int, default=3, help="reruns of each (default %(default)s)")
    options = made.parse_args()
    with scratch() as folder:
        return measure(options, folder)


def measure(options: argparse.Namespace, folder: Path) -> int:
    """Ingest, then ingest again; return the exit status."""
    settings = settings_in(
        folder,
        corpus_source(options),
        chunker={"kind": "text"},
        embedder={"kind": "hashing", "dimension": 64, "max_tokens": 256},
    )
    first = ingested(settings, folder, executor="inline", timeout_s=options.timeout)
    documents, chunks = first.report.documents, first.report.chunks
    print(f"{documents.read:,} documents, {chunks.chunks:,} chunks; first ingest, inline: ", end="")
    print(f"{first.seconds:.1f} s")
    medians = []
    for executor in ("inline", "ray"):
        runs = [
            ingested(settings, folder, executor=executor, timeout_s=options.timeout)
            for _ in range(options.rounds)
        ]
        _require_unchanged(runs, documents.read)
        medians.append(statistics.median(run.seconds for run in runs))
        print(f"unchanged, {executor}: {spread([run.seconds for run in runs], 's')}")
        if executor == "ray":
            print(
                f"    and {spread([run.executor_start_s for run in runs], 's')} to start Ray, ",
                end="",
            )
            print(f"{spread([run.executor_end_s for run in runs], 's')} to end it")
        print(f"    other processes meanwhile: {', '.join(run.measured.others for run in runs)}")
    worst = max(medians)
    return verdict(
        good=worst <= options.maximum,
        what=f"unchanged in {worst:.2f} s, the limit is {options.maximum:g} s",
    )


def _require_unchanged(runs: list[Ingest], documents: int) -> None:
    for run in runs:
        counts = run.report.documents
        if counts.unchanged + counts.dead != documents or run.report.changed_anything:
            raise BenchError(f"a rerun changed something: {run.report}")


if __name__ == "__main__":
    sys.exit(main())
