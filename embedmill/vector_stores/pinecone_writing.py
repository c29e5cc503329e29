"""Writing one batch to Pinecone: packs under its limits, and the record that a pack chokes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from embedmill.batching import by_halves, pack
from embedmill.errors import PermanentError, StopRunError
from embedmill.payload import Payload
from embedmill.vector_store import StoreLimits, VectorBatch
from embedmill.vector_stores.pinecone_data import Record
from embedmill.vector_stores.pinecone_metadata import METADATA_BYTES, Metadata, metadata_of

# Rows that are laid out at a time: one of 1,536 dimensions is 17 KB of text.
_AT_ONCE = 1000
# Beside vector and metadata a record is 36 characters of id and three keys.
_RECORD_BYTES = 100
# So many alone and none accepted: it is not about the records.
_HOPELESS = 20


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A record that is ready but for its floats: as text they take half the memory."""

    row: int
    id: str
    values: bytes
    metadata: Metadata
    size: int

    def record(self) -> Record:
        values = orjson.loads(self.values)
        return {"id": self.id, "values": values, "metadata": self.metadata}


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
        prepared: list[_Prepared] = []
        for one in _prepared(batch):
            if isinstance(one, _Prepared):
                prepared.append(one)
            else:
                refused[one] = _TOO_LARGE
            if len(prepared) == _AT_ONCE:
                refused |= self._send(prepared)
                prepared = []
        refused |= self._send(prepared)
        if self._alone > 1 and not self._accepted:
            raise _none_taken(len(batch.ids), next(iter(refused.values()))[1])
        return refused

    def _send(self, prepared: Sequence[_Prepared]) -> dict[int, tuple[str, str]]:
        refused: dict[int, PermanentError] = {}
        packs = pack(
            len(prepared),
            most_rows=self._limits.records,
            sizes={"bytes": [one.size for one in prepared]},
            limits={"bytes": self._limits.request_bytes},
        )
        for part in packs:
            # A record over the limit by itself is sent alone: the server has the last word.
            refused |= by_halves(part.rows, lambda rows: self._request(prepared, rows))
        return {prepared[at].row: (error.code, str(error)) for at, error in refused.items()}

    def _request(self, prepared: Sequence[_Prepared], rows: Sequence[int]) -> None:
        try:
            self._put_all([prepared[row].record() for row in rows])
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
                f"Pinecone took {taken} of {len(records)} records", code="not-stored"
            )


_TOO_LARGE = (
    "payload-too-large",
    f"as metadata the payload has more than the {METADATA_BYTES:,} bytes that Pinecone takes",
)


def _none_taken(count: int, words: str) -> StopRunError:
    return StopRunError(f"the store took none of {count:,} records; the first: {words}")


def _prepared(batch: VectorBatch) -> Iterator[_Prepared | int]:
    """Records ready to send, and the rows of those that are too large."""
    vectors = np.ascontiguousarray(batch.vectors)
    for row, (record, payload) in enumerate(zip(batch.ids, batch.payloads, strict=True)):
        yield _record(row, str(record), vectors[row], payload)


def _record(row: int, record: str, vector: object, payload: Payload) -> _Prepared | int:
    metadata = metadata_of(payload)
    metadata_size = len(orjson.dumps(metadata))
    if metadata_size > METADATA_BYTES:
        return row
    # The shortest decimals that are these float32: half the text of the same numbers as doubles.
    text = orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY)
    return _Prepared(
        row=row,
        id=record,
        values=text,
        metadata=metadata,
        size=len(text) + metadata_size + _RECORD_BYTES,
    )
