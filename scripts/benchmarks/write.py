"""Writing records to a store: the product's writer against the bare client.

In turn, eight segments at a time in one process, all into the same fake server (another process,
which answers without looking at what it is sent): ``StoreWriter``, which reads segments, makes the
records, checks them, sends them and records that they are applied; and the store's own client in
the fastest loops that we know, with the very same records ready in memory. Of several loops the
fastest counts. Where the store is an engine in the process, each writes to a folder. Between them
stands the store's own ``upsert`` with the records ready in memory: checks and confirmation alone.
For an engine in the process this one is judged, and ``StoreWriter`` only printed: there is no
server to wait for, so that reading three files and syncing a fourth for each segment, which the
bare loop does not do, comes on top of writing.

Fails when the product writes fewer than ``--minimum`` of the bare client's records per second, or
when it keeps what it has written: with ``--records 65536`` or more its memory, in a process of its
own, may grow by 500 bytes per record in the second half.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import orjson

from benchmarks.figures import no_verdict, spread, verdict
from benchmarks.ingesting import INDEX, add_maximum_others, parser, scratch
from benchmarks.machine import Measured, measured, others_cores
from benchmarks.writing import PRODUCT, STORE, STORES, DenseEmbedder, corpus_settings
from embedmill.assembly import Seams, seams
from embedmill.executor import InlineExecutor
from pipelines.ingest import ingest

# Far below the smallest vector that is measured: 384 components are 1,536 bytes.
_KEPT_BYTES = 500
# Before so many, buffers that stay as they are still grow to their size.
_ENOUGH_FOR_MEMORY = 65_536
# An engine in the process is faster than files are read and synced: there the store is compared.
_LIMITS = {
    "qdrant": (PRODUCT, 0.85),
    "pinecone": (PRODUCT, 0.85),
    "weaviate": (PRODUCT, 0.85),
    "embedded": (STORE, 0.9),
}


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=600)
    made.add_argument("--stores", default=",".join(STORES), help="default: %(default)s")
    made.add_argument("--dimensions", default="384,1536", help="default: %(default)s")
    made.add_argument("--records", type=int, default=16_384, help="default: %(default)s")
    made.add_argument("--rounds", type=int, default=3, help="of each (default %(default)s)")
    made.add_argument(
        "--segment", type=int, default=512, help="records per segment (default: %(default)s)"
    )
    made.add_argument(
        "--minimum",
        type=float,
        help="of the ratio; without it 0.9 for an engine in the process, 0.85 for servers",
    )
    add_maximum_others(made)
    options = made.parse_args()
    stores = options.stores.split(",")
    if unknown := [store for store in stores if store not in STORES]:
        made.error(f"--stores: {', '.join(unknown)} is none of {', '.join(STORES)}")
    status = 0
    for dimension in map(int, options.dimensions.split(",")):
        with scratch() as folder:
            make_corpus(folder, dimension, options)
            for store in stores:
                status = max(status, compare(store, dimension, folder, options))
    return status


def make_corpus(folder: Path, dimension: int, options: argparse.Namespace) -> None:
    """Fill the layers up to the vectors, by the product itself."""
    rows = (
        {"id": f"doc-{number:06d}", "text": text, "lang": "en", "year": 2000 + number % 26}
        for number in range(options.records)
        for text in [f"{number} " + "lorem ipsum dolor sit amet " * 26]
    )
    (folder / "rows.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    with seams(Seams(embedder=DenseEmbedder)):
        ingest(corpus_settings(folder, dimension, options.segment), InlineExecutor())


def compare(store: str, dimension: int, folder: Path, options: argparse.Namespace) -> int:
    """Measure one store, print it, and return the exit status."""
    runs = [run_once("turns", store, dimension, folder, options, n) for n in range(options.rounds)]
    print(f"\n{store}, {dimension:,} components, {options.records:,} records")
    found = costs_of(runs)
    for name, cost in found.items():
        rates, cpu = [1 / each for each, _ in cost], processor_of(cost)
        print(f"  {name:30} {spread(rates, 'records/s', 0)}; {1e6 * cpu:.0f} us of processor each")
    costs, loops = {name: found.pop(name) for name in (PRODUCT, STORE)}, found
    best = min(loops, key=lambda name: seconds_of(loops[name]))
    # Of one run each: what disturbed it disturbed both.
    ratios = {
        name: [loop[0] / own[0] for loop, own in zip(loops[best], cost, strict=True)]
        for name, cost in costs.items()
    }
    said = ", ".join(f"{spread(ratio, digits=3)} {name}" for name, ratio in ratios.items())
    print(f"  ratio to {best}: {said}")
    # Less disturbed by others than the time that passes.
    least = min(processor_of(loop) for loop in loops.values())
    said = ", ".join(f"{least / processor_of(cost):.3f} {name}" for name, cost in costs.items())
    print(f"  the same by processor time, to the thriftiest loop: {said}")
    alone = run_once("memory", store, dimension, folder, options, 0)
    kept = describe_memory(alone.answer, runs[0].answer["records"])
    others = others_cores([*runs, alone])
    if others > options.maximum_others:
        return no_verdict(others, options.maximum_others)
    judged, minimum = _LIMITS[store]
    minimum = options.minimum or minimum
    ratio = middle(ratios[judged])
    what = f"{ratio:.3f} of the bare client, {minimum:g} is wanted of {judged}"
    if options.records < _ENOUGH_FOR_MEMORY:
        return verdict(good=ratio >= minimum, what=what)
    return verdict(
        good=ratio >= minimum and kept <= _KEPT_BYTES,
        what=f"{what}; {kept:+.0f} bytes kept per record, at most {_KEPT_BYTES} are allowed",
    )


def run_once(
    which: str, store: str, dimension: int, folder: Path, options: argparse.Namespace, number: int
) -> Measured:
    """One process; see :mod:`benchmarks.one_write`."""
    # A name of its own in each store: what is applied to one is not there in another.
    name = f"{INDEX}-{store}-{which}-{number}"
    arguments = [str(folder), store, which, str(dimension), name]
    return measured(
        "benchmarks.one_write", arguments, folder, timeout_s=options.timeout, period_s=1.0
    )


def costs_of(runs: list[Measured]) -> dict[str, list[tuple[float, float]]]:
    """Seconds and processor seconds per record of each writer, run by run, by its name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        records: int = run.answer["records"]
        for name, (seconds, cpu) in run.answer["writers"].items():
            found.setdefault(name, []).append((seconds / records, cpu / records))
    return found


def seconds_of(cost: list[tuple[float, float]]) -> float:
    """Seconds per record, the median."""
    return middle([seconds for seconds, _ in cost])


def processor_of(cost: list[tuple[float, float]]) -> float:
    """Processor seconds per record, the median."""
    return middle([processor for _, processor in cost])


def describe_memory(answer: dict[str, Any], records: int) -> float:
    """Print how memory grew in both halves of a run of the product; bytes kept per record."""
    first, second, peak = (answer[each] / 2**20 for each in ("first", "second", "peak"))
    print(f"  memory of the writer: {peak:.0f} MiB at most, ", end="")
    print(f"{first:+.1f} MiB in the first half, {second:+.1f} in the second")
    return float(answer["second"]) / (records / 2)


def middle(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())
