"""Memory while the corpus grows: it must be bounded by what is in flight, plus the ledger.

Makes small documents (10 to 15 words, the same ones every time), one chunk each, and ingests them
over Ray with hashed vectors into a store that only counts. Sums the memory of all processes of a
run (driver, Ray's own, workers) once a period and compares the peaks of a small and a large corpus.

The bound has two parts:

* In flight, whatever the size of the corpus: per reader three blocks (at most 1,000 rows or 8 MiB
  each, in Ray's shared memory), two calls per worker, of each shard the pending segment (at most
  run.segment_chunks chunks or run.segment_bytes of text), and in each worker the segment in its
  hands as Arrow and as Python objects.
* Per document: its row in the ledger of the shard worker that owns it. 50 bytes as an array with a
  column of 8 beside it for the search; recent changes up to an eighth of the rows stand in a
  dictionary of some 300 bytes an entry until they are merged, and at that moment the rows exist
  three times, one shard at a time. The store that counts keeps 8 bytes a record, 20 for moments.

The rate is that of documents after the first segment was committed: starting the workers would
make a small corpus look slow, and a large one's fall would hide behind it. A fall on a machine with
other work is no verdict (exit status 3); the processor time of one more document is shown too.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from benchmarks.figures import no_verdict, verdict
from benchmarks.ingesting import Ingest, add_maximum_others, ingested, parser, scratch, settings_in
from benchmarks.machine import BenchError, mib, others_cores

WORDS = """
    index vector document chunk segment shard ledger model token query store record search cluster
    worker reader writer corpus paragraph sentence heading table column row metric cosine answer
    question passage archive river mountain winter summer engine signal harbour bridge copper silver
    garden window letter number market island valley forest captain doctor teacher
""".split()  # noqa: SIM905 (a list of one word per line hides the rest of the module)


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=1800)
    made.add_argument(
        "--documents",
        default="100000,1000000",
        help="sizes of the corpora, ascending (default %(default)s)",
    )
    made.add_argument(
        "--maximum", type=float, default=200.0, help="bytes per document (default %(default)g)"
    )
    made.add_argument(
        "--maximum-fall", type=float, default=10.0, help="of the rate, in %% (default %(default)g)"
    )
    add_maximum_others(made)
    options = made.parse_args()
    sizes = [int(size) for size in options.documents.split(",")]
    if len(sizes) < 2 or sizes != sorted(set(sizes)):
        made.error("--documents takes at least two sizes, ascending")
    runs = [measure(size, options) for size in sizes]
    return compare(sizes, runs, options)


def measure(documents: int, options: argparse.Namespace) -> Ingest:
    """Ingest a corpus of this size and print what that took."""
    with scratch() as folder:
        corpus = folder / "corpus.jsonl"
        write_corpus(corpus, documents)
        settings = settings_in(
            folder,
            {"path": str(corpus)},
            chunker={"kind": "document"},
            embedder={"kind": "hashing", "dimension": 64},
            store={"kind": "discard", "path": str(folder / "store")},
        )
        run = ingested(settings, folder, executor="ray", timeout_s=options.timeout)
    if run.report.documents.added != documents or run.report.stored_records != documents:
        raise BenchError(f"not every document arrived: {run.report}")
    print(f"{documents:,} documents in {run.seconds:.1f} s; ", end="")
    print(f"once the workers run {rate(run):,.0f} documents/s; ", end="")
    print(f"peak {mib(run.measured.peak_bytes)}")
    print(f"    processor: {run.measured.own_cpu_s:.0f} s; others: {run.measured.others}")
    shares = ", ".join(f"{name} {mib(size)}" for name, size in run.measured.at_peak)
    print(f"    at the peak: {shares}", flush=True)
    return run


def rate(run: Ingest) -> float:
    """Documents per second after the first segment was committed."""
    return run.report.documents.read / (run.seconds - run.first_chunks_s)


def compare(sizes: list[int], runs: list[Ingest], options: argparse.Namespace) -> int:
    """Print how memory and rate change from the smallest to the largest; return the status."""
    grown = runs[-1].measured.peak_bytes - runs[0].measured.peak_bytes
    growth = grown / (sizes[-1] - sizes[0])
    fall = 100 * (1 - rate(runs[-1]) / rate(runs[0]))
    print(f"\nfrom {sizes[0]:,} to {sizes[-1]:,} documents: ", end="")
    print(f"{growth:+.0f} bytes per document, rate {-fall:+.1f} %")
    more_cpu = runs[-1].measured.own_cpu_s - runs[0].measured.own_cpu_s
    print(f"one more document costs {1e6 * more_cpu / (sizes[-1] - sizes[0]):.0f} us of processor")
    others = others_cores([run.measured for run in runs])
    too_busy = others > options.maximum_others
    if growth <= options.maximum and fall > options.maximum_fall and too_busy:
        return no_verdict(others, options.maximum_others)
    return verdict(
        good=growth <= options.maximum and fall <= options.maximum_fall,
        what=f"at most {options.maximum:g} bytes per document and a rate at most "
        f"{options.maximum_fall:g} % lower",
    )


def write_corpus(path: Path, documents: int) -> None:
    """Write JSON lines with the columns id and text; the same ones for the same number."""
    # Not for secrets: the same words every time.
    draw = random.Random(20)  # noqa: S311
    with path.open("w") as file:
        for number in range(documents):
            words = " ".join(draw.choices(WORDS, k=10 + number % 6))
            file.write(f'{{"id":"d{number:08d}","text":"{words} {number}"}}\n')


if __name__ == "__main__":
    sys.exit(main())
