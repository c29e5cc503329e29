"""One measurement of writing, in a process of its own; prints it as one line of JSON.

Usage: ``python -m benchmarks.one_write FOLDER STORE turns|memory DIMENSION NAME``
"""

from __future__ import annotations

import gc
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psutil

from actors.store_writer import StoreWriter
from benchmarks.bare_write import LOOPS, Loop
from benchmarks.writing import (
    PRODUCT,
    STORE,
    STORES,
    context_of,
    corpus_settings,
    records_of,
    segments_of,
    served,
)
from embedmill.assembly import collection_spec, store_of
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.settings import Settings
from embedmill.vector_store import VectorBatch, confirmed_together


def main() -> None:
    """Write as the arguments say, say how long it took."""
    folder, store, which, dimension, name = sys.argv[1:]
    settings = corpus_settings(Path(folder), int(dimension), 512)
    with served(store, Path(folder)) as place:
        try:
            answer = {"turns": in_turn, "memory": memory}[which](settings, store, place, name)
        finally:
            if not STORES[store].fake:
                shutil.rmtree(place, ignore_errors=True)
    print(orjson.dumps(answer).decode())


# Segments of a turn: the product confirms so many together, where so many wait.
TOGETHER = 8


@dataclass(slots=True)
class Writer:
    """One of those that write the same segments.

    Attributes:
        write: segments, by their numbers; those before them are written.
        finish: what it does after the last.
        seconds: that it took.
        cpu: processor seconds of this process meanwhile.
    """

    write: Callable[[range], object]
    finish: Callable[[], object] | None = None
    seconds: float = 0.0
    cpu: float = 0.0

    def timed(self, do: Callable[[], object]) -> None:
        """Do something, and add what it takes."""
        seconds, cpu = time.perf_counter(), time.process_time()
        do()
        self.seconds += time.perf_counter() - seconds
        self.cpu += time.process_time() - cpu


def in_turn(settings: Settings, store: str, place: str, name: str) -> dict[str, Any]:
    """Let the product and the loops over the store's client write some segments at a time in turn.

    One after the other they would each meet another machine: where cores are shared with others,
    the same writer takes half as long again some seconds later.
    """
    of_product = _context(settings, store, place, f"{name}-product")
    keys, batches = segments_of(of_product), list(records_of(of_product))
    of_store = _context(settings, store, place, f"{name}-store")
    writers = {PRODUCT: _product(of_product, keys), STORE: _store(of_store, batches)}
    dimension = batches[0].vectors.shape[1]
    writers |= {
        which: _loop(make(place, dimension), batches) for which, make in LOOPS[store].items()
    }
    # Connections are made and modules loaded with the first.
    for writer in writers.values():
        writer.write(range(1))
    settle()
    order, draw = list(writers.values()), random.Random(0)  # noqa: S311 (no secret)
    for numbers in turns(keys):
        # Nobody always meets the caches and the disk as the same one leaves them.
        draw.shuffle(order)
        for writer in order:
            writer.timed(partial(writer.write, numbers))
    for writer in order:
        if writer.finish is not None:
            writer.timed(writer.finish)
    return {
        "records": sum(len(batch.ids) for batch in batches[1:]),
        "writers": {which: (writer.seconds, writer.cpu) for which, writer in writers.items()},
    }


def turns(keys: Sequence[SegmentKey]) -> list[range]:
    """Numbers of the segments but the first, some of one shard at a time."""
    found = [range(1, 1)]
    for number in range(1, len(keys)):
        last = found[-1]
        if len(last) == TOGETHER or keys[number].shard != keys[number - 1].shard:
            last = range(number, number)
            found.append(last)
        found[-1] = range(last.start, number + 1)
    return found


def _context(settings: Settings, store: str, place: str, name: str) -> RunContext:
    # Of servers a collection, of an engine a folder each: it has one owner.
    own = place if STORES[store].fake else f"{place}/{name}"
    return context_of(settings, STORES[store].section(own), name)


def _product(context: RunContext, keys: Sequence[SegmentKey]) -> Writer:
    """Apply segments through the product's writer."""
    writer = StoreWriter(context)
    writer.prepare()
    applied: dict[int, int] = {}

    def write(numbers: range) -> None:
        some = [keys[number] for number in numbers]
        while some:
            # A call ends after a second.
            done, _ = writer.apply(some, applied.get(some[0].shard))
            if done.failure is not None:
                raise done.failure
            count = len(done.counts)
            applied[some[0].shard] = some[count - 1].number
            del some[:count]

    return Writer(write)


def _store(context: RunContext, batches: Sequence[VectorBatch]) -> Writer:
    """Upsert records that are ready in memory."""
    store = store_of(context.settings)
    collection = context.collection
    store.create_collection(collection, collection_spec(context.embedding))

    def write(numbers: range) -> None:
        with confirmed_together(store, collection):
            for number in numbers:
                store.upsert(collection, batches[number])

    return Writer(write)


def _loop(loop: Loop, batches: Sequence[VectorBatch]) -> Writer:
    """Write the same records with the store's own client."""
    ready = [
        VectorBatch(batch.ids, batch.vectors, list(map(loop.metadata, batch.payloads)))
        for batch in batches
    ]

    def write(numbers: range) -> None:
        for number in numbers:
            loop.write(ready[number])

    return Writer(write, loop.finish)


def memory(settings: Settings, store: str, place: str, name: str) -> dict[str, Any]:
    """Apply all segments through the product's writer, and see how its memory grows."""
    context = _context(settings, store, place, name)
    keys = segments_of(context)
    writer = _product(context, keys)
    settle()
    writer.write(range(1))
    sizes = [own_bytes()]
    for numbers in turns(keys):
        writer.write(numbers)
        if len(keys) // 2 in numbers or len(keys) - 1 in numbers:
            sizes.append(own_bytes())
    return {"first": sizes[1] - sizes[0], "second": sizes[2] - sizes[1], "peak": peak_bytes()}


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
