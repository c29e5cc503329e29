"""What a whole run costs on top of its model: the product against bare ``encode``.

In turn: the whole product (over Ray; from a ready executor to the report, starting the workers and
loading the model into each included) and nothing but ``SentenceTransformer.encode`` with the same
texts, weights, dtype, rows per batch and number of threads (loading and a first call to warm up not
counted), once as one process with all threads and once as one process per thread; the faster of the
two counts. The texts are read back from the index: those that the run gave to its model, sorted by
length.

Fails when the ratio of the medians is above the limit. On a machine with other work the numbers
mean little: threads of one process wait for the slowest of them, and the product looks better than
it is. Then there is no verdict, and the exit status is 3.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import orjson
import psutil

from benchmarks.figures import no_verdict, spread, verdict
from benchmarks.ingesting import (
    MINILM,
    Ingest,
    add_corpus,
    add_maximum_others,
    corpus_source,
    ingested,
    parser,
    scratch,
    settings_in,
)
from benchmarks.machine import BenchError, Measured, measured, others_cores
from embedmill.assembly import recipes_of, workspace_of
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.settings import Settings
from embedmill.vector_layer import EMBEDDED, VectorLayer


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=1800)
    add_corpus(made)
    made.add_argument("--rounds", type=int, default=3, help="of each (default %(default)s)")
    made.add_argument(
        "--maximum", type=float, default=1.15, help="of the ratio (default %(default)g)"
    )
    made.add_argument(
        "--threads",
        type=int,
        default=psutil.cpu_count(),
        help="of the bare model, as many as the run's workers have together (default %(default)s)",
    )
    made.add_argument(
        "--batch", type=int, default=8, help="rows of the bare model's batch (default %(default)s)"
    )
    add_maximum_others(made)
    made.add_argument("--embed-workers", type=int, help="of the product; without it as it decides")
    made.add_argument("--model", default=MINILM["model"], help="default: %(default)s")
    options = made.parse_args()
    with scratch() as folder:
        return compare(*measure(options, folder), options)


def measure(
    options: argparse.Namespace, folder: Path
) -> tuple[list[Ingest], dict[int, list[Measured]]]:
    """Run both in turn; the product first, since it makes the texts.

    Returns:
        Runs of the product, and of the bare model by its number of processes.
    """
    runs: list[Ingest] = []
    bare: dict[int, list[Measured]] = {each: [] for each in sorted({1, options.threads})}
    texts = folder / "texts.json"
    for number in range(options.rounds):
        home = folder / str(number)
        home.mkdir()
        settings = settings_of(options, home)
        runs.append(ingested(settings, home, executor="ray", timeout_s=options.timeout))
        describe(runs[-1])
        texts.write_bytes(orjson.dumps(embedded_texts(settings)))
        for processes, measurements in bare.items():
            measurements.append(bare_encode(options, home, texts, processes))
            if measurements[-1].answer["vectors"] != runs[-1].report.chunks.embedded:
                raise BenchError("the bare model got other texts than the run")
    return runs, bare


def settings_of(options: argparse.Namespace, home: Path) -> Settings:
    """The product as it comes, on the documents given."""
    workers = {"embed_workers": options.embed_workers} if options.embed_workers else {}
    return settings_in(
        home,
        corpus_source(options),
        chunker={"kind": "text"},
        # As the bare model is run.
        embedder={**MINILM, "model": options.model, "backend": "torch"},
        run=workers,
    )


def embedded_texts(settings: Settings) -> list[str]:
    """Texts of the chunks that went through the model, as often as they did; longest first."""
    workspace = workspace_of(settings)
    chunking, embedding = recipes_of(settings)
    chunks = ChunkLayer(workspace, settings.index, chunking.id)
    folder = f"{chunking.id}/{embedding.id}"
    vectors = VectorLayer(workspace, settings.index, folder, embedding.dimension)
    texts: list[str] = []
    for shard, numbers in chunks.committed().items():
        for number in numbers:
            table, digest = chunks.chunks(SegmentKey(shard, number))
            origin = vectors.read(SegmentKey(shard, number), digest).origin
            column = table.column("text").to_pylist()
            texts += [text for text, how in zip(column, origin, strict=True) if how == EMBEDDED]
    return sorted(texts, key=len, reverse=True)


def bare_encode(options: argparse.Namespace, home: Path, texts: Path, processes: int) -> Measured:
    """Encode the texts with the bare model, and print how long that took."""
    counts = [processes, options.threads // processes, options.batch]
    arguments = [str(home / "settings.json"), str(texts), *map(str, counts)]
    run = measured(
        "benchmarks.bare_encode", arguments, home, timeout_s=options.timeout, period_s=1.0
    )
    layout = f"{processes} x {options.threads // processes} threads"
    print(f"bare    {run.answer['encode_s']:6.1f} s as {layout}; ", end="")
    print(f"not counted: {run.answer['load_s']:.1f} s to load the model")
    print(f"        others: {run.others}", flush=True)
    return run


def describe(run: Ingest) -> None:
    """Print where the time of one run went."""
    parts = {
        "to the first chunks": run.first_chunks_s,
        "to the first vectors (model)": run.first_vectors_s - run.first_chunks_s,
        "embedding": run.last_vectors_s - run.first_vectors_s,
        "to the report": run.seconds - run.last_vectors_s,
    }
    said = " + ".join(f"{seconds:.1f} {what}" for what, seconds in parts.items())
    print(f"product {run.seconds:6.1f} s = {said}")
    print(f"        others: {run.measured.others}", flush=True)


def compare(
    runs: list[Ingest], bare: dict[int, list[Measured]], options: argparse.Namespace
) -> int:
    """Print medians, spread and ratio; return the exit status."""
    counts = runs[-1].report.chunks
    product_s = [run.seconds for run in runs]
    times = {each: [run.answer["encode_s"] for run in found] for each, found in bare.items()}
    best = min(times, key=lambda each: statistics.median(times[each]))
    bare_s = times[best]
    print(f"\n{counts.chunks:,} chunks: {counts.embedded:,} embedded, ", end="")
    print(f"{counts.deduplicated:,} equal to others; {counts.tokens:,} tokens")
    for name, seconds in (("product", product_s), ("bare", bare_s)):
        rate = counts.embedded / statistics.median(seconds)
        print(f"{name:7} {spread(seconds, 's', 1)}; {rate:.1f} chunks/s")
    print(f"bare at its best: {best} processes; {options.threads} threads together, ", end="")
    print(f"batches of {options.batch}")
    print(f"product until its first vectors {spread([r.first_vectors_s for r in runs], 's', 1)}")
    print("processor: ", end="")
    print(f"product with Ray and all starts {spread(cpu_of(runs), 's', 1)}, ", end="")
    print(f"bare {spread([run.answer['cpu_s'] for run in bare[best]], 's', 1)}")
    each = [mine / other for mine, other in zip(product_s, bare_s, strict=True)]
    ratio = statistics.median(product_s) / statistics.median(bare_s)
    print(f"ratio of the medians {ratio:.3f}; round by round {spread(each, digits=3)}")
    return judge(ratio, [*(run.measured for run in runs), *bare[best]], options)


def cpu_of(runs: list[Ingest]) -> list[float]:
    """Processor seconds of whole runs."""
    return [run.measured.own_cpu_s for run in runs]


def judge(ratio: float, measurements: list[Measured], options: argparse.Namespace) -> int:
    """Say whether the limit is kept, where the machine was quiet enough to say so."""
    others = others_cores(measurements)
    if others > options.maximum_others:
        return no_verdict(others, options.maximum_others)
    return verdict(
        good=ratio <= options.maximum,
        what=f"{ratio:.3f} times the bare model, the limit is {options.maximum:g}",
    )


if __name__ == "__main__":
    sys.exit(main())
