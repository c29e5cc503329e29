"""Writing one batch to Pinecone: packs under its limits, and the record that a pack chokes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import orjson

from embedmill.batching import by_halves, pack
from embedmill.errors import PermanentError, StopRunError
from embedmill.plain_numbers import number_of
from embedmill.vector_store import StoreLimits, VectorBatch
from embedmill.vector_stores.pinecone_data import Record
from embedmill.vector_stores.pinecone_metadata import METADATA_BYTES, metadata_of

# Rows that are laid out at a time: one of 1,536 dimensions is 17 KB of text.
_AT_ONCE = 1000
# Of a request beside its records: two keys, and the name of a namespace.
_BODY_BYTES = 400
# So many alone and none accepted: it is not about the records.
_HOPELESS = 20


class BatchWriter:
    """Writes one batch; see :meth:`write`."""

    def __init__(self, put: Callable[[Sequence[Record]], int], limits: StoreLimits) -> None:
        """Hold what is needed.

        Args:
            put: sends records in one request and says how many were taken; PermanentError when
                the request is refused for what is in it.
            limits: of one request.
        """
        self._put = put
        self._limits = limits
        self._accepted = 0
        self._alone = 0

    def write(self, batch: VectorBatch) -> dict[int, tuple[str, str]]:
        """Write records that passed all checks of ours.

        Returns:
            Code and message for each row that was not taken.

        Raises:
            StopRunError: none of several was taken.
        """
        refused: dict[int, tuple[str, str]] = {}
        for start in range(0, len(batch.ids), _AT_ONCE):
            part = range(start, min(start + _AT_ONCE, len(batch.ids)))
            records = _records(batch, part)
            refused |= {row: TOO_LARGE for row in part if row not in records}
            refused |= self._send(list(records), list(records.values()))
        if self._alone > 1 and not self._accepted:
            raise _none_taken(len(batch.ids), next(iter(refused.values()))[1])
        return refused

    def _send(self, rows: Sequence[int], records: Sequence[Record]) -> dict[int, tuple[str, str]]:
        refused: dict[int, PermanentError] = {}
        packs = pack(
            len(records),
            most_rows=self._limits.records,
            sizes={"bytes": [len(record) + 1 for record in records]},
            limits={"bytes": self._limits.request_bytes - _BODY_BYTES},
        )
        for part in packs:
            # A record over the limit by itself is sent alone: the server has the last word.
            refused |= by_halves(part.rows, lambda some: self._request(records, some))
        return {rows[at]: (error.code, str(error)) for at, error in refused.items()}

    def _request(self, records: Sequence[Record], rows: Sequence[int]) -> None:
        try:
            self._put_all(records[rows[0] : rows[-1] + 1])
        except PermanentError as error:
            self._alone += len(rows) == 1
            if self._alone >= _HOPELESS and not self._accepted:
                raise _none_taken(self._alone, str(error)) from error
            raise
        self._accepted += len(rows)

    def _put_all(self, records: Sequence[Record]) -> None:
        taken = self._put(records)
        if taken != len(records):
            # Which ones it does not say; sent again in halves, each ends somewhere.
            raise PermanentError(
                f"Pinecone took {taken} of {number_of(len(records), 'record')}", code="not-stored"
            )


TOO_LARGE = (
    "payload-too-large",
    f"as metadata the payload has more than the {METADATA_BYTES:,} bytes that Pinecone takes",
)


def _none_taken(count: int, words: str) -> StopRunError:
    return StopRunError(f"the store took none of {number_of(count, 'record')}; the first: {words}")


def _records(batch: VectorBatch, rows: range) -> dict[int, Record]:
    """Records as JSON by row; those that are too large are left out.

    Each is written in one go: id, vector and metadata one by one, put together, take 1 us more of
    16 per record of 384 components.
    """
    vectors = np.ascontiguousarray(batch.vectors[rows.start : rows.stop])
    found: dict[int, Record] = {}
    for row, vector in zip(rows, vectors, strict=True):
        metadata = metadata_of(batch.payloads[row])
        # A float32 is written with the shortest decimals that are it: half the text of doubles.
        record = orjson.dumps(
            {"id": batch.ids[row], "values": vector, "metadata": metadata},
            option=orjson.OPT_SERIALIZE_NUMPY,
        )
        if len(record) <= METADATA_BYTES or len(orjson.dumps(metadata)) <= METADATA_BYTES:
            found[row] = record
    return found
