"""How records are given to Qdrant's embedded engine, and what it means when it refuses all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import orjson
import qdrant_edge

from embedmill.batching import Pack, pack
from embedmill.errors import PermanentError, StopRunError
from embedmill.plain_numbers import number_of
from embedmill.vector_store import StoreLimits, VectorBatch

# 64 records: with 512 at a time writing takes 7 % longer at 384 components, 2 % at 1,536; with 16
# as long as with 64. 32 MiB is one file of the engine's log; larger writes get a file of their own
# (70 MiB passed).
QDRANT_EMBEDDED_LIMITS = StoreLimits(
    records=64, request_bytes=32 * 2**20, payload_bytes=8 * 2**20, writers=1
)


def packed(batch: VectorBatch, limits: StoreLimits) -> tuple[int, Iterator[Pack]]:
    """Bytes of the records, and how they are cut for the engine."""
    count, vector = len(batch.ids), batch.vectors.shape[1] * 4
    together = len(orjson.dumps(list(batch.payloads))) + count * vector
    if together <= limits.request_bytes:
        # Every pack fits, wherever it ends: their number is enough.
        return together, pack(count, most_rows=limits.records)
    sizes = [vector + len(orjson.dumps(payload)) for payload in batch.payloads]
    bytes_each, most_bytes = {"bytes": sizes}, {"bytes": limits.request_bytes}
    packs = pack(count, most_rows=limits.records, sizes=bytes_each, limits=most_bytes)
    return sum(sizes), packs


def upsert_of(records: VectorBatch, rows: slice) -> qdrant_edge.UpdateOperation:
    """What the engine is asked for, to have some of the records."""
    columns = zip(records.ids[rows], records.vectors[rows], records.payloads[rows], strict=True)
    # The engine reads any sequence of floats; a list of them made for it takes 2.4 us of 56 per
    # record at 384 components, and 11 of 106 at 1,536.
    points = [
        qdrant_edge.Point(record, cast("list[float]", memoryview(vector)), payload)
        for record, vector, payload in columns
    ]
    return qdrant_edge.UpdateOperation.upsert_points(points)


def check_not_all(refused: dict[int, PermanentError], count: int) -> None:
    """One bad record is a dead letter; when none of several passes, it is not about the records.

    Raises:
        StopRunError: all of several records were refused.
    """
    if count > 1 and len(refused) == count:
        first = refused[min(refused)]
        raise StopRunError(
            f"the store took none of {number_of(count, 'record')}; the first: {first}"
        )
