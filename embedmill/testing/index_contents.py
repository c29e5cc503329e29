"""What an index holds, for comparing two ways of building it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import numpy as np

from embedmill.assembly import store_of, workspace_of
from embedmill.embedder import Vectors
from embedmill.manifest import Manifest
from embedmill.payload import Payload
from embedmill.settings import Settings

# One float32 written and read back is equal; sums in another order differ by less than this.
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class IndexContents:
    """Records of a published version, by id."""

    payloads: dict[UUID, Payload]
    vectors: dict[UUID, Vectors]

    def documents(self) -> set[str]:
        """Ids of the documents that have records."""
        return {str(payload["doc_id"]) for payload in self.payloads.values()}


def contents_of(settings: Settings) -> IndexContents:
    """Read the published version of an index; nobody else may hold its store."""
    version = Manifest(workspace_of(settings), settings.index).read().published
    assert version is not None, "nothing is published"
    store = store_of(settings)
    try:
        ids = sorted(store.ids(version.collection))
        batch = store.fetch(version.collection, ids)
    finally:
        store.close()
    return IndexContents(
        payloads=dict(zip(batch.ids, batch.payloads, strict=True)),
        vectors=dict(zip(batch.ids, batch.vectors, strict=True)),
    )


def assert_same_contents(
    one: IndexContents, other: IndexContents, *, places_moved: bool = False
) -> None:
    """Compare point by point: ids, payloads, vectors within :data:`TOLERANCE`.

    Args:
        one: contents.
        other: contents.
        places_moved: rows of a table have moved since; a document that is otherwise unchanged
            keeps the uri that it had.
    """
    left_out = {"uri"} if places_moved else set()
    assert one.payloads.keys() == other.payloads.keys()
    for record, payload in one.payloads.items():
        expected = other.payloads[record]
        assert payload.keys() == expected.keys()
        for key in payload.keys() - left_out:
            assert payload[key] == expected[key], (record, key)
    for record, vector in one.vectors.items():
        np.testing.assert_allclose(vector, other.vectors[record], rtol=0, atol=TOLERANCE)
