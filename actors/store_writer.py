"""Writes segments to the store; all segments of one shard go through one writer, in order."""

from __future__ import annotations

from functools import partial

from embedmill.applying import SegmentApplier
from embedmill.assembly import Layers, collection_spec, store_of
from embedmill.counts import RecordCounts
from embedmill.dead_letter import bury_chunks
from embedmill.publishing import finish_collection, point_alias
from embedmill.run_context import RunContext, utc_now
from embedmill.segment import SegmentKey


class StoreWriter:
    """Holds one client of the store."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._layers = Layers(context)
        self._store = store_of(context.settings)
        self._applier = SegmentApplier(
            self._layers.chunks,
            self._layers.vectors,
            self._layers.applied,
            self._store,
            context.collection,
            now=utc_now,
            run=context.run,
            bury=partial(bury_chunks, self._layers.workspace, context, self._layers.chunks),
        )

    def prepare(self) -> int:
        """Create the collection if there is none.

        Returns:
            Records in it.

        Raises:
            RefusedError: it exists with another spec, or somebody else holds the store.
        """
        self._store.create_collection(
            self._context.collection, collection_spec(self._context.embedding)
        )
        return self._store.count(self._context.collection)

    def apply(self, key: SegmentKey, previous: int | None) -> RecordCounts:
        """Apply a segment; see ``SegmentApplier.apply``."""
        return self._applier.apply(key, previous)

    def count(self) -> int:
        """Records in the version's collection."""
        return self._store.count(self._context.collection)

    def finish(self) -> None:
        """Make the collection fit to be searched: some stores build their graph at the end."""
        finish_collection(self._store, self._context.collection)

    def mirror(self) -> None:
        """Let the index's alias point at the version's collection; the manifest says it should."""
        point_alias(self._store, self._context.settings.index, self._context.collection)

    def alias_target(self) -> str | None:
        """The collection that readers see."""
        return self._store.alias_target(self._context.settings.index)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()
