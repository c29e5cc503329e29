"""Copy: fill another store from the vectors layer of a version. Nothing is embedded again."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from actors.store_writer import StoreWriter
from embedmill.assembly import Layers, require_local_store, store_of, workspace_of
from embedmill.copying import (
    OtherStore,
    copied_until,
    list_not_copied,
    not_copied,
    put_right,
    records_applied,
)
from embedmill.counts import DocumentCounts, RecordCounts
from embedmill.errors import CountsMismatchError, RefusedError
from embedmill.executor import Executor, WorkerSpec
from embedmill.lease import Lease, take_lease
from embedmill.manifest import IndexVersion, Manifest
from embedmill.plain_numbers import agreed, number_of
from embedmill.publishing import point_alias
from embedmill.run_context import RunContext, utc_now
from embedmill.run_report import RunReport, RunStatus, line_of, start_run, write_report
from embedmill.segment import SegmentKey
from embedmill.settings import Settings, StoreSettings
from embedmill.vector_store import finish_collection
from pipelines.apply_stage import WRITE, ApplyStage
from pipelines.bulk_copy import BulkCopy
from pipelines.dispatcher import Dispatcher
from pipelines.failed_runs import leave_report, status_by
from pipelines.faults import FaultPolicy
from pipelines.pools import writers_of
from pipelines.run_options import InterruptedRunError, Progress, RunOptions

log = logging.getLogger(__name__)
# Reasons for which records have no copy, the most frequent first.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """What a person decides for one copy.

    Attributes:
        version: number of the version; the published one without it.
        overwrite: the collection there is this version's, whatever is in it.
        alias: send readers of the other store to the copy, once it is complete.
    """

    version: int | None = None
    overwrite: bool = False
    alias: bool = True


def copy(
    settings: Settings,
    to: StoreSettings,
    executor: Executor,
    options: RunOptions,
    choices: CopyOptions | None = None,
) -> RunReport:
    """Make a collection of another store hold what an index version holds.

    Killed at any point, it goes on where it stopped when it is called again; called again later, it
    takes over what has changed since. At the end every record is compared.

    Args:
        settings: of the index; its own store is not asked.
        to: the other store.
        executor: runs the writers; closed by the caller.
        options: of this run.
        choices: of this copy.

    Returns:
        The report; ``partial`` when the other store did not take all records.

    Raises:
        RefusedError: there is nothing to copy, or the collection there is not a copy's.
        IndexLockedError: a run holds the index.
        StopRunError: the run ended early; run it again.
    """
    choices = choices or CopyOptions()
    other = OtherStore.of(to)
    if other == OtherStore.of(settings.store):
        raise RefusedError(
            f"{other} is the index's own store; there is nothing to copy",
            hint="name another store in the file that --to takes",
        )
    target = settings.model_copy(update={"store": to})
    require_local_store(target, executor.name)
    workspace = workspace_of(settings)
    version = version_to_read(settings, choices.version)
    with take_lease(
        workspace, settings.index, "copy", take_over=options.take_over, sleep=options.sleep
    ) as lease:
        context = RunContext(
            settings=target,
            run=start_run(
                workspace, settings.index, utc_now(), pipeline="copy", version=version.name
            ),
            version=version.name,
            collection=version.collection,
            chunking=version.chunking,
            embedding=version.embedding,
            copy_of=other.id,
        )
        return _Copy(context, version, other, executor, options, choices, lease).run()


def version_to_read(settings: Settings, number: int | None) -> IndexVersion:
    """The version with this number, else the published one, else the newest.

    Raises:
        RefusedError: there is no such version.
    """
    state = Manifest(workspace_of(settings), settings.index).read()
    found = state.version(number) if number is not None else state.published or state.newest
    if found is None:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet",
            hint="run embedmill ingest SETTINGS first",
        )
    if found.pruned is not None:
        raise RefusedError(
            f"the vectors of {found.name} were pruned, {found.pruned}",
            code="pruned",
            hint="build it again, with the settings it had: embedmill reembed SETTINGS",
        )
    return found


def require_vectors(layers: Layers, committed: Mapping[int, Sequence[int]]) -> None:
    """Refuse a version of which some segments have no vectors yet.

    Raises:
        RefusedError: it has.
    """
    present = {shard: set(numbers) for shard, numbers in layers.vectors.committed().items()}
    missing = sum(len(set(numbers) - present.get(s, set())) for s, numbers in committed.items())
    if missing:
        raise RefusedError(
            f"{number_of(missing, 'segment')} of this version "
            f"{agreed(missing, 'has', 'have')} no vectors yet",
            hint="run embedmill ingest SETTINGS to its end first",
        )


class _Copy:
    """One copy while it goes on."""

    def __init__(
        self,
        context: RunContext,
        version: IndexVersion,
        other: OtherStore,
        executor: Executor,
        options: RunOptions,
        choices: CopyOptions,
        lease: Lease,
    ) -> None:
        self._context = context
        self._version = version
        self._other = other
        self._options = options
        self._choices = choices
        self._lease = lease
        self._layers = Layers(context)
        self._executor = executor
        faults = FaultPolicy(executor, options.clock)
        self._writers = writers_of(context.settings, executor)
        self._dispatcher = Dispatcher(executor, faults)
        self._stage = ApplyStage(self._dispatcher, faults, self._writers)
        self._imported = RecordCounts()
        # Records that there should be at the end, and that there are.
        self._expected = self._stored = -1
        self._started = utc_now()
        self._clock = time.monotonic()

    def run(self) -> RunReport:
        """Copy, compare, send readers there, leave a report however it ends."""
        try:
            committed = self._layers.chunks.complete()
            require_vectors(self._layers, committed)
            self._begin(committed)
            self._fill(committed)
            self._complete()
            report = self._checked(self._report("succeeded"))
        except BaseException as error:
            failed = self._report(status_by(error), line_of(error))
            leave_report(self._layers.workspace, failed)
            raise
        write_report(self._layers.workspace, report)
        return report

    def _checked(self, report: RunReport) -> RunReport:
        """The report, ``partial`` when some records have no copy.

        Raises:
            CountsMismatchError: the other store does not count what was copied.
        """
        if report.problems():
            raise CountsMismatchError(report.problems()[0], hint="run the same command again")
        return replace(report, status="partial") if self._say_not_copied() else report

    def _say_not_copied(self) -> bool:
        """Say which records have no copy, if there are any; those of earlier runs too."""
        rows = list(not_copied(self._layers))
        if not rows:
            return False
        reasons = Counter((row.code, row.message) for row in rows)
        for (code, message), count in reasons.most_common(_SHOWN):
            log.warning("%d records have no copy: %s: %s", count, code, message)
        index = self._context.settings.index
        path = list_not_copied(self._layers.workspace, index, self._context.run, rows)
        log.warning("each of them is in %s of the workspace", path)
        return True

    def _begin(self, committed: Mapping[int, list[int]]) -> None:
        spec = WorkerSpec(StoreWriter, (self._context,))
        self._dispatcher.add_pool(WRITE, [spec] * self._writers)
        self._imported = BulkCopy(
            self._context,
            self._version,
            self._other,
            self._dispatcher,
            self._options.sleep,
            self._check,
        ).run(committed, overwrite=self._choices.overwrite)
        arguments = (self._version, self._other, self._choices.overwrite)
        self._dispatcher.ask_again((WRITE, 0), "begin_copy", *arguments, sleep=self._options.sleep)

    def _fill(self, committed: Mapping[int, list[int]]) -> None:
        done = copied_until(self._layers.applied, committed)
        for shard, numbers in committed.items():
            last = done.get(shard, -1)
            if shard in done:
                self._stage.start_after(shard, last)
            for number in numbers:
                if number > last:
                    self._stage.announce(SegmentKey(shard, number))
                    self._stage.ready(SegmentKey(shard, number))
        while not self._stage.idle:
            self._check()
            self._stage.pump()
            if self._dispatcher.in_flight:
                self._dispatcher.step(0.5)
            else:
                self._options.sleep(0.05)
            self._options.on_progress(self._progress())

    def _check(self) -> None:
        if self._lease.lost.is_set() or (self._options.stop and self._options.stop.is_set()):
            raise InterruptedRunError(
                "the copy was stopped; all that was copied is kept",
                hint="run the same command again to go on",
            )

    def _progress(self) -> Progress:
        return Progress(
            documents=DocumentCounts(),
            chunks=0,
            waiting=self._stage.waiting,
            applied=self._stage.applied,
            scanning=False,
        )

    def _complete(self) -> None:
        """Compare all records with what was copied; then let readers see them, and count."""
        # The writers let go of the store: some have one owner at a time.
        self._dispatcher.add_pool(WRITE, [])
        store, collection = store_of(self._context.settings), self._context.collection
        try:
            put_right(self._layers, store, collection)
            finish_collection(store, collection)
            if self._choices.alias and self._version.state == "published":
                point_alias(store, self._context.settings.index, collection)
            self._expected, self._stored = records_applied(self._layers), store.count(collection)
        finally:
            store.close()

    def _report(self, status: RunStatus, error: str = "") -> RunReport:
        return RunReport(
            run=self._context.run,
            index=self._context.settings.index,
            version=self._version.name,
            pipeline="copy",
            executor=self._executor.name,
            status=status,
            started=self._started,
            seconds=round(time.monotonic() - self._clock, 3),
            records=self._stage.counts + self._imported,
            writes=self._stage.writes,
            live_records=self._expected,
            stored_records=self._stored,
            error=error,
        )
