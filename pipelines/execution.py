"""One run while it goes on: the stages, what they were given, what they have done."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from actors.shard_worker import Drafted, ShardTotals, Standing
from embedmill.assembly import Layers
from embedmill.compacting import Compaction
from embedmill.counts import DocumentCounts
from embedmill.executor import Executor
from embedmill.gate import GateResult
from embedmill.lease import Lease
from embedmill.manifest import IndexVersion, ManifestState
from embedmill.publishing import require_known_alias
from embedmill.run_context import RunContext
from embedmill.run_report import RunReport, RunStatus
from embedmill.source import Split
from embedmill.visibility import require_visible
from embedmill.work_left import confirmed_in_line
from pipelines.apply_stage import WRITE, ApplyStage
from pipelines.deletions import decided_deletions
from pipelines.dispatcher import Address, Dispatcher
from pipelines.embed_stage import EMBED, EmbedStage
from pipelines.faults import FaultPolicy
from pipelines.intake import Intake
from pipelines.job_stage import JobStage, embed_stage
from pipelines.pools import PoolSizes, add_pools
from pipelines.recognition import known_shards
from pipelines.run_options import InterruptedRunError, Progress, RunOptions
from pipelines.scan import SHARD, Scan
from pipelines.small_run import Beginning, SmallRun

log = logging.getLogger(__name__)
# What is in flight may take this long to end after a stop was asked for.
_STOP_WAIT_S = 20.0
# Between two looks whether something is due. Who has waited for long may wait a tenth longer; and
# a stop that is asked for is heard within a second.
_SHORTEST_REST_S, _LATE, _LONGEST_REST_S = 0.05, 0.1, 1.0


class Execution:
    """Drives the stages of one run over an executor. Holds keys and counts, never rows.

    Attributes:
        executor: runs its workers.
        begun: when the run began, and with what.
    """

    def __init__(
        self,
        context: RunContext,
        executor: Executor,
        options: RunOptions,
        lease: Lease,
        begun: Beginning,
        sizes: PoolSizes,
        *,
        small: SmallRun | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            context: of the run.
            executor: runs its workers.
            options: of the run.
            lease: that it holds.
            begun: when it began; with segments: it goes on with one that has outgrown ``small``.
            sizes: of its pools.
            small: what it may do at most.
        """
        self._context = context
        self._lease = lease
        self._options = options
        self._sizes = sizes
        self._small = small
        self.begun = begun
        self._layers = Layers(context)
        self.executor = executor
        self._faults = FaultPolicy(executor, options.clock)
        self._dispatcher = Dispatcher(executor, self._faults)
        self._apply = ApplyStage(self._dispatcher, self._faults, sizes.writers)
        self._embed: EmbedStage | JobStage = embed_stage(
            context,
            options,
            self._dispatcher,
            self._faults,
            sizes.embed_workers,
            on_embedded=self._apply.ready,
            more_to_come=lambda: self._scanning,
        )
        self._intake = Intake(
            self._dispatcher, self._layers, sizes.shard_workers, self._embed, self._apply
        )
        self._left_over = 0
        self._scan: Scan | None = None
        self._documents = DocumentCounts()
        self._standing = Standing(-1, -1)
        self._stored = -1
        self._recorded = -1

    @property
    def _scanning(self) -> bool:
        return self._scan is not None and not self._scan.finished

    @property
    def parked(self) -> bool:
        """Embedding jobs go on at the provider; another run collects them."""
        return self._embed.parked and not self._embed.idle

    def prepare(
        self,
        *,
        splits: Sequence[Split] = (),
        fill: bool = True,
        rebuild: bool = False,
        hold: bool = False,
        copied: bool = False,
    ) -> int:
        """Declare the workers, open the store, queue what earlier runs left between the layers.

        Args:
            splits: of the source, where it is read next.
            fill: False leaves the store closed.
            rebuild: many of the stored segments lack vectors; equal texts are embedded once.
            hold: the store stays closed until :meth:`open_store`; vectors are made meanwhile.
            copied: an interrupted compaction is finished before, for all versions.

        Returns:
            How many segments were left.
        """
        require_visible(self.executor, self._context, splits)
        chunks = self._layers.chunks
        # Documents that are lost come back with the source; without it nobody misses them.
        committed = chunks.committed() if splits else chunks.complete()
        if not self.begun.segments:
            shards = range(self._context.settings.shard_count)
            starts = {s: committed[s][-1] + 1 if s in committed else 0 for s in shards}
            self.begun = replace(self.begun, segments=starts)
        segments = self.begun.segments
        add_pools(self._dispatcher, self._context, self._sizes, segments, scans=bool(splits))
        self._apply.held = hold
        if fill and not hold:
            self._ask((WRITE, 0), "prepare")
        for worker in range(self._sizes.shard_workers if copied else 0):
            self._ask((SHARD, worker), "finish_copies")
        applied = confirmed_in_line(chunks, self._layers.applied, mend=fill)
        if rebuild:
            self._intake.survey.read(committed)
        elif fill:
            # What an earlier run left: equal texts are embedded once, whichever run cut them.
            self._intake.survey.read_texts(committed, after=applied)
        if splits and not committed:
            # A first ingest: whatever the source has is new.
            self._embed.get_ready()
        self._intake.resume(committed, applied)
        return self._apply.waiting

    def open_store(self) -> None:
        """Open the store that was held closed; segments with vectors are applied from now on."""
        self._ask((WRITE, 0), "prepare")
        self._apply.held = False

    def catch_up(self) -> int:
        """Queue the segments that others have committed since; returns how many there are."""
        return self._intake.catch_up()

    def scan(self, splits: Sequence[Split], only: frozenset[str] | None = None) -> None:
        """Read the source to its end, filling the layers meanwhile; :meth:`drain` fills the rest.

        Args:
            splits: of the source.
            only: ids and uris of the rows to take; all without it.

        Raises:
            OutgrownError: there is more to do than a small run does.
        """
        self._left_over = self._intake.survey.chunks
        scan = self._scan = Scan(
            self._dispatcher,
            self._faults,
            splits,
            on_committed=self._intake.take_new,
            on_lost=lambda worker: self._intake.take_unreported(self._shards_of(worker)),
            only=only,
            plan=None if only else known_shards(self._context, self.begun.segments, self._options),
        )
        self._advance(lambda: scan.finished)

    def redraft(self, doc_ids: Mapping[int, Sequence[str]]) -> None:
        """Send documents through the layers again from their stored chunks.

        Args:
            doc_ids: by shard.
        """
        for worker in range(self._sizes.shard_workers):
            mine = {s: doc_ids[s] for s in self._shards_of(worker) if s in doc_ids}
            if mine:
                redrafted = cast(Drafted, self._dispatcher.ask((SHARD, worker), "redraft", mine))
                self._intake.take_drafted(redrafted)
        self.drain()

    def remove_gone(self) -> None:
        """Delete what the complete scan has not met, within the limits of the settings; drain.

        Raises:
            DeletionsWithheldError: that is too much; nothing was deleted, all else was taken in.
        """
        # At once: what was met is in the memory of workers, embedding may take days.
        workers = range(self._sizes.shard_workers)
        totals = [cast(ShardTotals, self._dispatcher.ask((SHARD, w), "totals")) for w in workers]
        deletions = decided_deletions(
            self._context.settings,
            totals,
            unidentified=self._scan.counts.unidentified if self._scan else 0,
            allowed=self._options.allow_deletes,
        )
        self._documents += DocumentCounts(withheld=deletions.withheld)
        for worker in workers if deletions.decided else ():
            removed = cast(Drafted, self._dispatcher.ask((SHARD, worker), "remove_unseen"))
            self._documents += removed.counts
            self._intake.take_drafted(removed)
        self.drain()
        if deletions.refusal is not None:
            raise deletions.refusal

    def count(self) -> None:
        """Ask the store how many records it has, and the ledgers how many documents.

        It is noted for :meth:`report`: a run that fails when its workspace is out of reach has one.
        """
        records = self._layers.applied.records_at
        self._recorded = sum(records(*last) for last in self._apply.last_applied.items())
        self._stored = cast(int, self._ask((WRITE, 0), "count"))
        workers = range(self._sizes.shard_workers)
        held = [cast(Standing, self._ask((SHARD, w), "standing")) for w in workers]
        self._standing = sum(held, Standing(0, 0))

    def compact(self, *, spare: int) -> Compaction:
        """Fold the segments of shards that have many more than they need.

        Args:
            spare: see ``ShardCompactor.compact``.
        """
        total = Compaction(0, 0)
        for worker in range(self._sizes.shard_workers):
            total += cast(Compaction, self._ask((SHARD, worker), "compact", spare))
        if total.segments_before:
            log.info("compacted %d segments to %d", total.segments_before, total.segments_after)
        return total

    def first_gates(self, version: IndexVersion) -> Sequence[GateResult]:
        """Make the first version of an index fit to be searched; what the gates say of it."""
        self._ask((WRITE, 0), "finish")
        texts = self._ask((WRITE, 0), "first_questions", version)
        answers = self._ask((EMBED, 0), "queries", texts) if texts else None
        found = self._ask((WRITE, 0), "first_gates", version, texts, answers)
        return cast(Sequence[GateResult], found)

    def mirror(self, state: ManifestState) -> None:
        """Let the index's alias point at the version's collection.

        Raises:
            RefusedError: it points where no version of this manifest ever was.
        """
        target = cast(str | None, self._ask((WRITE, 0), "alias_target"))
        require_known_alias(state, target, self._context.settings.index)
        self._ask((WRITE, 0), "mirror")

    def tidy(self) -> None:
        """Have the store do what the run's writes have put off: a search index, for instance."""
        self._ask((WRITE, 0), "tidy")

    def report(self, status: RunStatus, error: str = "") -> RunReport:
        """What has been done so far."""
        counted = self._scan.counts if self._scan else DocumentCounts()
        report = RunReport(
            run=self._context.run,
            index=self._context.settings.index,
            version=self._context.version,
            pipeline=self.begun.pipeline,
            executor=self.executor.name,
            status=status,
            started=self.begun.at,
            seconds=round(time.monotonic() - self.begun.clock, 3),
            documents=counted + self._documents,
            chunks=self._embed.counts,
            records=self._apply.counts,
            rate=self._embed.rate,
            writes=self._apply.writes,
            live_documents=self._standing.documents,
            live_records=self._recorded,
            stored_records=self._stored,
            lacking_records=self._lacking_records(),
            read_bytes=self._scan.size.read_bytes if self._scan else 0,
            error=error,
        )
        partial = status == "succeeded" and not report.complete
        return replace(report, status="partial") if partial else report

    def _ask(self, address: Address, method: str, *arguments: object) -> object:
        """Ask what may be asked twice."""
        return self._dispatcher.ask_again(address, method, *arguments, sleep=self._options.sleep)

    def _shards_of(self, worker: int) -> range:
        return range(worker, self._context.settings.shard_count, self._sizes.shard_workers)

    def _lacking_records(self) -> int:
        # Beside a build others cut chunks, which it takes up when it is published.
        counted = self._standing.chunks >= 0 and self.begun.pipeline in {"ingest", "replay"}
        return self._standing.chunks - self._recorded if counted else -1

    def drain(self) -> None:
        """Run until nothing is left to do.

        Raises:
            InterruptedRunError: the run was asked to stop.
            ShardOwnedElsewhereError: another run took over.
        """
        self._advance(self._is_settled)

    def _advance(self, is_done: Callable[[], bool]) -> None:
        self._rested_s = 0.0
        while not self._pumped(is_done):
            self._lease.require_held()
            if self._options.stop is not None and self._options.stop.is_set():
                self._stop()
            if self._dispatcher.in_flight:
                self._rested_s = 0.0
                self._dispatcher.step(0.5)
            else:
                self._rest()
            self._options.on_progress(self._progress())

    def _rest(self) -> None:
        """Wait for the next try of something; anything else would be a run that hangs."""
        stages = (self._scan, self._embed, self._apply)
        if not any(stage is not None and stage.retrying for stage in stages):
            raise RuntimeError("the driver has work left and nothing in flight")
        # The longer nothing happens, the more seldom it is looked: jobs may take a day.
        pause = min(max(_SHORTEST_REST_S, _LATE * self._rested_s), _LONGEST_REST_S)
        self._rested_s += pause
        self._options.sleep(pause)

    def _pumped(self, is_done: Callable[[], bool]) -> bool:
        """Submit what there is room for; whether that was all."""
        if self._scan is not None:
            self._scan.pump()
            if self._small is not None:
                self._small = self._small.checked(self._scan, self._left_over)
            read = self._scan.counts
            self._embed.expect(read.added + read.changed)
        if self._small is None:
            self._embed.pump()
            self._apply.pump()
        return is_done()

    def _is_settled(self) -> bool:
        idle = self._embed.idle and self._apply.idle
        return not self._scanning and (self._apply.starved if self._embed.parked else idle)

    def _stop(self) -> None:
        log.info("stopping: waiting for what is in flight")
        self._dispatcher.settle(_STOP_WAIT_S)
        raise InterruptedRunError(
            "the run was stopped; all that was committed is kept",
            hint="run the same command again to go on",
        )

    def _progress(self) -> Progress:
        read = self._scan.counts if self._scan else DocumentCounts()
        embed, apply = self._embed, self._apply
        return Progress(
            read, embed.counts.chunks, apply.waiting, apply.applied, self._scanning, embed.jobs
        )
