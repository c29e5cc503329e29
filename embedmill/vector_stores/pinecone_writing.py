"""Writing one batch to Pinecone: packs under its limits, and the record that a pack chokes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from embedmill.batching import by_halves
from embedmill.errors import PermanentError, StopRunError
from embedmill.payload import longer_than
from embedmill.plain_numbers import number_of
from embedmill.vector_store import StoreLimits, VectorBatch
from embedmill.vector_stores.pinecone_data import Record, upsert_body
from embedmill.vector_stores.pinecone_metadata import METADATA_BYTES, metadata_of

# Rows that are laid out at a time.
_AT_ONCE = 1000
# Records from whose size that of all is guessed.
_SAMPLE = 4
# A request is filled to this share of its limit by the size of the records before: a body that
# turns out too large has been written for nothing.
_FILLED = 0.98
# So many alone and none accepted: it is not about the records.
_HOPELESS = 20


class BatchWriter:
    """Writes one batch; see :meth:`write`."""

    def __init__(
        self, namespace: str, put: Callable[[bytes, int], int], limits: StoreLimits
    ) -> None:
        """Hold what is needed.

        Args:
            namespace: to write to.
            put: sends a body with so many records and says how many were taken; PermanentError
                when the request is refused for what is in it.
            limits: of one request.
        """
        self._namespace = namespace
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
            records, large = _records(batch, part)
            refused |= dict.fromkeys(large, TOO_LARGE)
            refused |= self._send([row for row in part if row not in large], records)
        if self._alone > 1 and not self._accepted:
            raise _none_taken(len(batch.ids), next(iter(refused.values()))[1])
        return refused

    def _send(self, rows: Sequence[int], records: Sequence[Record]) -> dict[int, tuple[str, str]]:
        refused: dict[int, PermanentError] = {}
        for part, body in self._requests(records):
            refused |= by_halves(part, partial(self._request, records, part, body))
        return {rows[at]: (error.code, str(error)) for at, error in refused.items()}

    def _requests(self, records: Sequence[Record]) -> Iterator[tuple[range, bytes]]:
        """Neighbouring records and their request's body, as many as fit its limits.

        Whole bodies are written, not records to be joined: that takes a quarter less, as a request
        is up to 2 MB and would be copied. So how many fit is guessed. A record over the limit by
        itself is alone: the server has the last word.
        """
        sample = range(0, len(records), max(1, len(records) // _SAMPLE))
        each = len(self._body(records, sample)) / max(1, len(sample))
        start = 0
        while start < len(records):
            most = min(self._limits.records, int(_FILLED * self._limits.request_bytes / each))
            part = range(start, min(start + max(1, most), len(records)))
            body = self._body(records, part)
            each = len(body) / len(part)
            if len(body) <= self._limits.request_bytes or len(part) == 1:
                yield part, body
                start = part.stop

    def _body(self, records: Sequence[Record], rows: Sequence[int]) -> bytes:
        return upsert_body(self._namespace, [records[row] for row in rows])

    def _request(
        self, records: Sequence[Record], part: range, body: bytes, rows: Sequence[int]
    ) -> None:
        """Send some rows; ``body`` is that of all of ``part``."""
        try:
            self._put_all(len(rows), body if rows == part else self._body(records, rows))
        except PermanentError as error:
            self._alone += len(rows) == 1
            if self._alone >= _HOPELESS and not self._accepted:
                raise _none_taken(self._alone, str(error)) from error
            raise
        self._accepted += len(rows)

    def _put_all(self, count: int, body: bytes) -> None:
        taken = self._put(body, count)
        if taken != count:
            # Which ones it does not say; sent again in halves, each ends somewhere.
            raise PermanentError(
                f"Pinecone took {taken} of {number_of(count, 'record')}", code="not-stored"
            )


TOO_LARGE = (
    "payload-too-large",
    f"as metadata the payload has more than the {METADATA_BYTES:,} bytes that Pinecone takes",
)


def _none_taken(count: int, words: str) -> StopRunError:
    return StopRunError(f"the store took none of {number_of(count, 'record')}; the first: {words}")


def _records(batch: VectorBatch, rows: range) -> tuple[list[Record], set[int]]:
    """Records of rows, without those that are too large, and which those are."""
    metadata = [metadata_of(payload) for payload in batch.payloads[rows.start : rows.stop]]
    large = set(longer_than(METADATA_BYTES, metadata))
    vectors = np.ascontiguousarray(batch.vectors[rows.start : rows.stop])
    columns = zip(batch.ids[rows.start : rows.stop], vectors, metadata, strict=True)
    records = [
        {"id": record, "values": vector, "metadata": about}
        for at, (record, vector, about) in enumerate(columns)
        if at not in large
    ]
    return records, {rows[at] for at in large}
