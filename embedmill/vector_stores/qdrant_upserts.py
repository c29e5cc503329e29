"""Upserts into a Qdrant server: checked, packed, sent, confirmed, and halved when refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from qdrant_client import QdrantClient

from embedmill.batching import by_halves, pack
from embedmill.errors import PermanentError, StopRunError
from embedmill.plain_numbers import number_of
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.store_checks import check_batch
from embedmill.throttle import RequestPace
from embedmill.vector_store import Rejection, StoreLimits, VectorBatch
from embedmill.vector_stores.qdrant_collections import Collection
from embedmill.vector_stores.qdrant_errors import confirmed, server_errors
from embedmill.vector_stores.qdrant_grpc import put_over_grpc
from embedmill.vector_stores.qdrant_wire import (
    fits_grpc,
    payloads_as_json,
    put_points,
    record_sizes,
    upsert_body,
    upsert_message,
)

# When not one of so many passes, it is not about the records.
_ENOUGH = 16


class Upserts:
    """Writes records through one client."""

    def __init__(
        self,
        client: QdrantClient,
        settings: QdrantServerSettings,
        secret: str,
        pace: RequestPace,
    ) -> None:
        self._client = client
        self._pace = pace
        self._grpc = settings.prefer_grpc
        self._timeout_s = settings.timeout_s
        self._secret = secret

    def upsert(
        self, name: str, collection: Collection, batch: VectorBatch, limits: StoreLimits
    ) -> list[Rejection]:
        """Write a batch of any size; see :meth:`~embedmill.vector_store.VectorStore.upsert`."""
        good, rows, rejections = check_batch(batch, collection.spec, limits)
        payloads = payloads_as_json(good.payloads)
        send = self._sender(name, good, payloads)
        refused: dict[int, PermanentError] = {}
        for part in pack(
            len(rows),
            most_rows=min(limits.records, collection.records or limits.records),
            sizes={"bytes": record_sizes(collection.spec.dimension, payloads)},
            limits={"bytes": limits.request_bytes},
        ):
            # A record over the limit is sent alone: the server takes more than we pack.
            refused |= by_halves(part.rows, send)
            _check_not_all(refused, part.rows.stop, enough=_ENOUGH)
        _check_not_all(refused, len(rows), enough=2)
        rejections += [
            Rejection(rows[row], error.code, str(error)) for row, error in refused.items()
        ]
        return sorted(rejections, key=lambda rejection: rejection.row)

    def _sender(
        self, name: str, batch: VectorBatch, payloads: Sequence[bytes]
    ) -> Callable[[Sequence[int]], None]:
        doing = f"writing to {name!r}"

        def put(rows: slice) -> str | None:
            if not self._grpc or not fits_grpc(payloads[rows]):
                return put_points(
                    self._client.http.client, name, upsert_body(batch, payloads, rows)
                )
            message = upsert_message(name, batch, rows)
            return put_over_grpc(
                self._client,
                message,
                doing=doing,
                timeout_s=self._timeout_s,
                secret=self._secret,
            )

        def request(rows: slice) -> None:
            with server_errors(doing, "write", self._secret):
                confirmed(put(rows), doing)

        def send(some: Sequence[int]) -> None:
            # Rows are neighbours: whatever they were cut to, they came from one range.
            rows = slice(some[0], some[-1] + 1)
            self._pace(partial(request, rows), len(some))

        return send


def _check_not_all(refused: dict[int, PermanentError], count: int, *, enough: int) -> None:
    """One bad record is a dead letter; when none of several passes, it is not about the records.

    Raises:
        StopRunError: all of at least ``enough`` records were refused.
    """
    if count >= enough and len(refused) == count:
        first = refused[min(refused)]
        raise StopRunError(
            f"the store took none of {number_of(count, 'record')}; the first: {first}",
            code="refused-by-store",
        )
