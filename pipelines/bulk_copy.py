"""Copies that the store reads from a bucket by itself: files, one import, and what it brought."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from embedmill.assembly import Layers, bulk_settings, import_bucket, importer_of, store_of
from embedmill.bulk_import import BulkImport, ImportPlan, ImportRecords
from embedmill.copying import OtherStore, is_ours, note_ours
from embedmill.counts import RecordCounts
from embedmill.errors import CountsMismatchError
from embedmill.import_files import ImportFile, folder_of, live_count
from embedmill.manifest import IndexVersion
from embedmill.pinecone_settings import BulkImportSettings
from embedmill.plain_numbers import number_of
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from pipelines.apply_stage import WRITE
from pipelines.dispatcher import Dispatcher

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BulkCopy:
    """One copy that a store may read by itself.

    Attributes:
        context: of the copy.
        version: that is copied.
        other: the store.
        dispatcher: of the writers.
        sleep: waits for so many seconds.
        check: raises when the copy is to stop.
    """

    context: RunContext
    version: IndexVersion
    other: OtherStore
    dispatcher: Dispatcher
    sleep: Callable[[float], None]
    check: Callable[[], None]

    def run(self, committed: Mapping[int, list[int]], *, overwrite: bool) -> RecordCounts:
        """Import what is committed, where the settings and the state of the copy call for it.

        Whatever is committed later, and whatever the copy had already, is left to the writers.

        Returns:
            What the segments came to that this process has recorded.

        Raises:
            StopRunError: the import failed.
            CountsMismatchError: the store does not have what it says it has read.
        """
        settings = bulk_settings(self.context.settings)
        if settings is None:
            return RecordCounts()
        layers, index = Layers(self.context), self.context.settings.index
        records = ImportRecords(layers.workspace, index, self.other.id, self.context.collection)
        plan = records.plan()
        if plan is None:
            if not self._is_wanted(layers, settings, overwrite=overwrite):
                return RecordCounts()
            plan = self._write_files(settings, committed)
            records.write_plan(plan)
        if records.confirmed():
            return RecordCounts()
        note_ours(layers.workspace, index, self.version.collection, self.other)
        self._import(records, plan, settings, overwrite=overwrite)
        counts = self._confirm(layers, plan, committed)
        import_bucket(self.context).delete(plan.files)
        records.note_confirmed()
        return counts

    def _is_wanted(self, layers: Layers, settings: BulkImportSettings, *, overwrite: bool) -> bool:
        """Whether the copy is large and new: an import makes its collection."""
        index = self.context.settings.index
        if layers.applied.committed() or is_ours(
            layers.workspace, index, self.version.collection, self.other
        ):
            return False
        if live_count(layers.chunks) < settings.from_records:
            return False
        store = store_of(self.context.settings)
        try:
            there = self.context.collection in store.collections()
        finally:
            store.close()
        # What is there is refused, or written over, by those who know how.
        return overwrite or not there

    def _write_files(
        self, settings: BulkImportSettings, committed: Mapping[int, list[int]]
    ) -> ImportPlan:
        context = self.context
        folder = folder_of(
            context.settings.index, context.collection, self.other.id, dict(committed)
        )
        files: list[ImportFile] = []
        for shard in sorted(committed):
            first = 0
            while first >= 0:
                self.check()
                files.append(
                    cast("ImportFile", self._ask("write_import_file", folder, shard, first))
                )
                first = files[-1].following
        records = sum(file.records for file in files)
        log.info("%d records in %d files are ready to be imported", records, len(files))
        return ImportPlan(
            url=f"{settings.bucket.url.rstrip('/')}/{folder}/",
            records=records,
            files=tuple(file.path for file in files if file.path),
            until={shard: numbers[-1] for shard, numbers in committed.items()},
        )

    def _import(
        self,
        records: ImportRecords,
        plan: ImportPlan,
        settings: BulkImportSettings,
        *,
        overwrite: bool,
    ) -> None:
        store = store_of(self.context.settings)
        try:
            importer = importer_of(store, self.context)
            BulkImport(
                records,
                importer,
                plan,
                poll_s=settings.poll_s,
                sleep=self.sleep,
                check=self.check,
            ).run()
            stored = store.count(self.context.collection)
        finally:
            store.close()
        if stored != plan.records and not overwrite:
            raise CountsMismatchError(
                f"the import ended well, and the store has {stored:,} of "
                f"{number_of(plan.records, 'record')}",
                hint="run the same command again, since the store may lag behind; with --overwrite "
                "what differs is put right record by record",
            )

    def _confirm(
        self, layers: Layers, plan: ImportPlan, committed: Mapping[int, list[int]]
    ) -> RecordCounts:
        """Record the segments that were imported, those that are still there, in order."""
        counts = RecordCounts()
        applied = {shard: set(numbers) for shard, numbers in layers.applied.committed().items()}
        for shard, numbers in committed.items():
            previous: int | None = None
            for number in numbers:
                if number > plan.until.get(shard, -1):
                    break
                self.check()
                if number not in applied.get(shard, set()):
                    key = SegmentKey(shard, number)
                    counts += cast("RecordCounts", self._ask("confirm_import", key, previous))
                previous = number
        return counts

    def _ask(self, method: str, *arguments: object) -> object:
        return self.dispatcher.ask_again((WRITE, 0), method, *arguments, sleep=self.sleep)
