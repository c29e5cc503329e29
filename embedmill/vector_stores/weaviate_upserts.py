"""Upserts into Weaviate: checked, packed, sent; each object's own error is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weaviate.proto.v1 import batch_pb2

from embedmill.batching import by_halves, pack
from embedmill.errors import PermanentError, StopRunError
from embedmill.plain_numbers import number_of
from embedmill.throttle import RequestPace
from embedmill.vector_store import StoreLimits, VectorBatch
from embedmill.vector_stores.weaviate_client import WeaviateConnection
from embedmill.vector_stores.weaviate_errors import of_object
from embedmill.vector_stores.weaviate_records import objects_of
from embedmill.vector_stores.weaviate_schema import Collection

# Objects made at a time: one of 1,536 components and a page of text is 10 KB.
_AT_ONCE = 1000
# Around an object in a request: a tag and its length.
_AROUND = 6
# Around the objects, of what a server takes in one message.
_SPARE = 4096
# When not one of so many passes, it is not about the records.
_ENOUGH = 16


class Upserts:
    """Writes one batch into one collection, or into one tenant of it."""

    def __init__(
        self,
        connection: WeaviateConnection,
        class_name: str,
        limits: StoreLimits,
        pace: RequestPace,
    ) -> None:
        self._pace = pace
        self._connection = connection
        self._class_name = class_name
        self._limits = limits
        self._taken = 0
        self._refused: dict[int, PermanentError] = {}

    def write(
        self, collection: Collection, batch: VectorBatch, rows: Sequence[int], tenant: str | None
    ) -> None:
        """Write records that passed all checks of ours.

        Args:
            collection: as the server describes it.
            batch: records.
            rows: number of each, for :meth:`refused`.
            tenant: that they go to.

        Raises:
            OutcomeUnknownError: some may be stored; ids are stable, so repeating is safe.
            StopRunError: no record can be written, or none of many was taken.
        """
        prepared: list[batch_pb2.BatchObject] = []
        start = 0
        for one in objects_of(self._class_name, collection, batch, tenant):
            prepared.append(one)
            if len(prepared) == _AT_ONCE:
                self._send(prepared, rows[start : start + _AT_ONCE])
                start += _AT_ONCE
                prepared = []
        self._send(prepared, rows[start:])

    def refused(self) -> dict[int, PermanentError]:
        """What the server said about each row that it did not take.

        Raises:
            StopRunError: none of several was taken: it is not about the records.
        """
        self._check_not_all(enough=2)
        return self._refused

    def _send(self, objects: Sequence[batch_pb2.BatchObject], rows: Sequence[int]) -> None:
        most = min(self._limits.request_bytes, self._connection.message_bytes - _SPARE)
        for part in pack(
            len(objects),
            most_rows=self._limits.records,
            sizes={"bytes": [one.ByteSize() + _AROUND for one in objects]},
            limits={"bytes": most},
        ):
            # An object over the limit is sent alone: the server has the last word.
            alone = by_halves(
                part.rows,
                lambda some: self._pace(partial(self._put, objects, rows, some), len(some)),
            )
            self._refused |= {rows[at]: error for at, error in alone.items()}
            self._check_not_all(enough=_ENOUGH)

    def _put(
        self, objects: Sequence[batch_pb2.BatchObject], rows: Sequence[int], some: Sequence[int]
    ) -> None:
        errors = self._connection.put(self._class_name, [objects[at] for at in some])
        for at, words in errors.items():
            error = of_object(self._connection.cleaned(words), f"writing to {self._class_name!r}")
            if not isinstance(error, PermanentError):
                # About the server or the collection: the others of this batch mean nothing.
                raise error
            self._refused[rows[some[at]]] = error
        self._taken += len(some) - len(errors)

    def _check_not_all(self, *, enough: int) -> None:
        if len(self._refused) >= enough and not self._taken:
            first = self._refused[min(self._refused)]
            raise StopRunError(
                f"the store took none of {number_of(len(self._refused), 'record')}; the first: "
                f"{first}",
                code="refused-by-store",
            )
