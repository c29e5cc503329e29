"""Pinecone's bulk import: Parquet files in S3, one folder per namespace, read by the service.

The layout is that of Pinecone's import guide: below the address of an import a folder with the name
of the namespace, in it files with the columns ``id``, ``values`` and ``metadata`` (JSON text). The
namespace must not exist yet. An import that fails may leave half of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson
import pyarrow as pa
from pinecone.models.imports.model import ImportModel

from embedmill.bulk_import import ImportState, ImportStatus
from embedmill.parquet_files import to_parquet
from embedmill.store_checks import check_batch
from embedmill.vector_store import CollectionSpec, Rejection, StoreLimits, VectorBatch
from embedmill.vector_stores.pinecone_metadata import METADATA_BYTES, metadata_of
from embedmill.vector_stores.pinecone_places import OpenedIndex
from embedmill.vector_stores.pinecone_writing import TOO_LARGE

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("values", pa.list_(pa.float32()), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
    ]
)
# Everything else goes on.
_ENDS: dict[str, ImportStatus] = {
    "Completed": "completed",
    "Failed": "failed",
    "Cancelled": "failed",
}


class PineconeImporter:
    """A :class:`~embedmill.bulk_import.BulkImporter` into one namespace."""

    def __init__(
        self,
        opened: OpenedIndex,
        collection: str,
        spec: CollectionSpec,
        limits: StoreLimits,
        integration: str | None,
    ) -> None:
        self._opened = opened
        self._collection = collection
        self._spec = spec
        self._limits = limits
        self._integration = integration

    def rejections(self, batch: VectorBatch) -> Sequence[Rejection]:
        """Rows that cannot be imported, in order."""
        _, _, rejections = self._checked(batch)
        return rejections

    def file_of(self, batches: Sequence[VectorBatch]) -> tuple[bytes, int]:
        """A Parquet file of the rows that can be imported, and their number."""
        tables = [_table(*self._checked(batch)[:2]) for batch in batches]
        table = pa.concat_tables(tables)
        # Vectors do not compress, and the texts are a small part beside them.
        return to_parquet(table, compression="zstd"), table.num_rows

    def start(self, url: str) -> str:
        """Start an import of all files below an address; a single bad record ends it."""
        return self._opened.data.start_import(url, self._integration)

    def started_from(self, url: str) -> Sequence[ImportState]:
        """All imports of this address that the service lists."""
        wanted = url.rstrip("/")
        imports = self._opened.data.imports()
        return [_state(one) for one in imports if one.uri.rstrip("/") == wanted]

    def state(self, import_id: str) -> ImportState:
        """What the service says of an import."""
        return _state(self._opened.data.import_state(import_id))

    def clear(self) -> None:
        """Delete the namespace, and wait until it is gone; absent is no error."""
        data, name = self._opened.data, self._collection
        if data.has_namespace(name):
            data.delete_namespace(name)
            self._opened.freshness.until(lambda: not data.has_namespace(name), name)
        self._opened.freshness.forget(name)

    def _checked(self, batch: VectorBatch) -> tuple[VectorBatch, list[bytes], Sequence[Rejection]]:
        good, rows, rejections = check_batch(batch, self._spec, self._limits)
        metadata = [orjson.dumps(metadata_of(payload)) for payload in good.payloads]
        large = {at for at, text in enumerate(metadata) if len(text) > METADATA_BYTES}
        if not large:
            return good, metadata, rejections
        rejections += [Rejection(rows[at], *TOO_LARGE) for at in large]
        kept = [at for at in range(len(rows)) if at not in large]
        return (
            good.take(kept),
            [metadata[at] for at in kept],
            sorted(rejections, key=lambda rejection: rejection.row),
        )


def _table(batch: VectorBatch, metadata: Sequence[bytes]) -> pa.Table:
    count, dimension = batch.vectors.shape
    flat = np.ascontiguousarray(batch.vectors, dtype=np.float32).ravel()
    offsets = np.arange(count + 1, dtype=np.int32) * dimension
    columns = [
        pa.array([str(record) for record in batch.ids], pa.string()),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat)),
        pa.array([text.decode() for text in metadata], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _state(model: ImportModel) -> ImportState:
    status = _ENDS.get(model.status, "running")
    error = model.error or ("somebody cancelled it" if model.status == "Cancelled" else "")
    return ImportState(
        id=model.id,
        status=status,
        records=model.records_imported or 0,
        share=(model.percent_complete or 0.0) / 100,
        error=error or ("the service does not say why" if status == "failed" else ""),
    )
