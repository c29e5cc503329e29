"""One measurement of writing, in a process of its own; prints it as one line of JSON.

Usage: ``python -m benchmarks.one_write FOLDER STORE product|store|bare DIMENSION NAME``
"""

from __future__ import annotations

import gc
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import psutil

from actors.store_writer import StoreWriter
from benchmarks.bare_write import LOOPS
from benchmarks.writing import STORES, context_of, corpus_settings, records_of, segments_of, served
from embedmill.assembly import collection_spec, store_of
from embedmill.run_context import RunContext


def main() -> None:
    """Write as the arguments say, say how long it took."""
    folder, store, which, dimension, name = sys.argv[1:]
    settings = corpus_settings(Path(folder), int(dimension), 512)
    with served(store, Path(folder)) as place:
        context = context_of(settings, STORES[store].section(place), name)
        try:
            if which == "bare":
                answer = bare(context, store, place)
            else:
                answer = {"product": by_the_product, "store": by_the_store}[which](context)
        finally:
            if not STORES[store].fake:
                shutil.rmtree(place, ignore_errors=True)
    print(orjson.dumps(answer).decode())


def by_the_product(context: RunContext) -> dict[str, Any]:
    """Apply all segments through the product's writer."""
    writer = StoreWriter(context)
    settle()
    writer.prepare()
    segments = segments_of(context)
    # Connections are made and modules loaded with the first.
    first = segments.pop(0)
    writer.apply(first, None)
    records, applied = 0, {first.shard: first.number}
    sizes = [own_bytes()]
    started, cpu = time.perf_counter(), time.process_time()
    for number, key in enumerate(segments, 1):
        counts, _ = writer.apply(key, applied.get(key.shard))
        applied[key.shard] = key.number
        records += counts.upserted
        if number in (len(segments) // 2, len(segments)):
            sizes.append(own_bytes())
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    writer.close()
    return {
        "records": records,
        "seconds": seconds,
        "cpu": cpu,
        "first": sizes[1] - sizes[0],
        "second": sizes[2] - sizes[1],
        "peak": peak_bytes(),
    }


def by_the_store(context: RunContext) -> dict[str, Any]:
    """Upsert the records of all segments, which are ready in memory."""
    store, batches = store_of(context.settings), list(records_of(context))
    store.create_collection(context.collection, collection_spec(context.embedding))
    store.upsert(context.collection, batches.pop(0))
    settle()
    started, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        store.upsert(context.collection, batch)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    store.close()
    return {"records": sum(len(batch.ids) for batch in batches), "seconds": seconds, "cpu": cpu}


def bare(context: RunContext, store: str, place: str) -> dict[str, Any]:
    """Write the same records with the store's own client, loop by loop."""
    batches = list(records_of(context))
    loops = {}
    for name, make in LOOPS[store].items():
        write = make(place, batches)
        settle()
        started, cpu = time.perf_counter(), time.process_time()
        write()
        loops[name] = (time.perf_counter() - started, time.process_time() - cpu)
    return {"records": sum(len(batch.ids) for batch in batches), "loops": loops}


def settle() -> None:
    """Keep what is there now out of the sight of the collector of garbage, as ``Host`` does."""
    gc.collect()
    gc.freeze()


def peak_bytes() -> int:
    """The most memory that this program held.

    Not ``ru_maxrss``: that begins with what the process held that started this one.
    """
    status = Path("/proc/self/status").read_text()
    found = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(found.split()[1]) * 1024


def own_bytes() -> int:
    """Memory of this process that is no mapped file."""
    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))


if __name__ == "__main__":
    main()
