"""Writes segments to the store; all segments of one shard go through one writer, in order."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from embedmill.applying import AppliedSegments, LostChunk, RecordStore, SegmentApplier
from embedmill.assembly import Layers, collection_spec, import_bucket, importer_of, store_of
from embedmill.bulk_import import BulkImporter
from embedmill.copying import OtherStore, begin_copy
from embedmill.counts import RecordCounts, WriteCounts
from embedmill.dead_letter import Stage, bury_chunks
from embedmill.embedder import EmbeddedTexts
from embedmill.gate import GateResult
from embedmill.gates.first import Answered, FirstGates
from embedmill.import_files import ImportedRecords, ImportFile, ImportFiles
from embedmill.live_records import LiveRecords
from embedmill.manifest import IndexVersion
from embedmill.own_collection import open_own_collection
from embedmill.publishing import point_alias
from embedmill.run_context import RunContext, utc_now
from embedmill.segment import SegmentKey
from embedmill.throttle import Throttle
from embedmill.vector_store import finish_collection, tidy_collection


class StoreWriter:
    """Holds one client of the store."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._layers = Layers(context)
        # Processes that started together differ in this.
        spread = os.getpid() % 16 / 16
        self._throttle = Throttle(clock=time.monotonic, sleep=time.sleep, spread=spread)
        self._store = store_of(context.settings, self._throttle)
        self._first: FirstGates | None = None
        self._applier = self._applier_of(self._store)
        self._confirmer: SegmentApplier | None = None
        self._imports: BulkImporter | None = None

    def prepare(self) -> int:
        """Create the collection if there is none; see ``open_own_collection``.

        Returns:
            Records in it.

        Raises:
            RefusedError: it is lost, or not this index's, or somebody else holds the store.
        """
        if self._context.copy_of:
            spec = collection_spec(self._context.embedding)
            self._store.create_collection(self._context.collection, spec)
        else:
            open_own_collection(self._context, self._layers, self._store)
        return self._store.count(self._context.collection)

    def begin_copy(self, version: IndexVersion, other: OtherStore, overwrite: bool) -> None:  # noqa: FBT001 (over the executor)
        """Create the collection of a copy, and note that it is one; see ``begin_copy``."""
        self.prepare()
        begin_copy(
            self._layers.workspace,
            self._context.settings.index,
            version,
            other,
            self._store,
            overwrite=overwrite,
        )

    def apply(
        self, keys: Sequence[SegmentKey], previous: int | None
    ) -> tuple[AppliedSegments, WriteCounts]:
        """Apply segments of one shard; see ``SegmentApplier.apply_all``.

        Returns:
            What was applied, and what the store took since the last call.
        """
        return self._applier.apply_all(keys, previous), self._throttle.take_counts()

    def write_import_file(self, folder: str, shard: int, first: int) -> ImportFile:
        """Write one file of a bulk import into its bucket; see ``ImportFiles.write``."""
        live = LiveRecords(self._layers.chunks, self._layers.vectors, None)
        files = ImportFiles(import_bucket(self._context), folder, self._context.collection, live)
        return files.write(self._importer(), shard, first)

    def confirm_import(self, key: SegmentKey, previous: int | None) -> RecordCounts:
        """Record of a segment that was imported what ``apply`` would; the store is not asked."""
        if self._confirmer is None:
            self._confirmer = self._applier_of(ImportedRecords(self._importer().rejections))
        return self._confirmer.apply(key, previous)

    def _importer(self) -> BulkImporter:
        if self._imports is None:
            self._imports = importer_of(self._store, self._context)
        return self._imports

    def _applier_of(self, store: RecordStore) -> SegmentApplier:
        return SegmentApplier(
            self._layers.chunks,
            self._layers.vectors,
            self._layers.applied,
            store,
            self._context.collection,
            now=utc_now,
            run=self._context.run,
            clock=time.monotonic,
            # A call that took longer than its deadline would be taken for dead.
            at_most_s=self._context.settings.run.call_deadline_s / 3,
            bury=self._bury,
        )

    def count(self) -> int:
        """Records in the version's collection."""
        return self._store.count(self._context.collection)

    def finish(self) -> None:
        """Make the collection fit to be searched: some stores build their graph at the end."""
        finish_collection(self._store, self._context.collection)

    def first_questions(self, version: IndexVersion) -> list[str]:
        """What the first version of an index is to be searched for; see ``FirstGates``."""
        self._first = FirstGates(self._context.settings, self._layers.workspace, version)
        return self._first.questions()

    def first_gates(
        self, version: IndexVersion, texts: Sequence[str], embedded: EmbeddedTexts | None
    ) -> tuple[GateResult, ...]:
        """What the gates say of the first version of an index.

        Args:
            version: that is to be published.
            texts: of the questions.
            embedded: what its model makes of them; None where there are none.
        """
        if self._first is None:
            # Another writer was asked for the questions, and has died since.
            self.first_questions(version)
        assert self._first is not None
        return self._first.results(self._store, Answered(version.embedding, texts, embedded))

    def mirror(self) -> None:
        """Let the index's alias point at the version's collection; the manifest says it should."""
        point_alias(self._store, self._context.settings.index, self._context.collection)

    def tidy(self) -> None:
        """Have the store do what writing has put off, where it is one that puts off."""
        tidy_collection(self._store, self._context.collection)

    def alias_target(self) -> str | None:
        """The collection that readers see."""
        return self._store.alias_target(self._context.settings.index)

    def _bury(self, key: SegmentKey, stage: Stage, lost: Sequence[LostChunk]) -> None:
        # What another store does not take is no dead letter of the index: its own store has it.
        if not self._context.copy_of:
            bury_chunks(
                self._layers.workspace, self._context, self._layers.chunks, key, stage, lost
            )

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()
