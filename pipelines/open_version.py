"""The index version that a run works on, under a lease: begun, run, recorded, reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from embedmill.announcing import announce, keep_event
from embedmill.arrivals import refusal_event, tell_of_arrival
from embedmill.assembly import recipes_of, workspace_of
from embedmill.compacting import SPARE_SEGMENTS
from embedmill.errors import EmbedmillError, RefusedError
from embedmill.executor import Executor
from embedmill.gates.first import refusal_of_first
from embedmill.job_assembly import (
    HAVING_JOBS,
    job_records,
    jobs_left,
    open_jobs,
    price_per_million,
    uses_jobs,
)
from embedmill.job_summary import summaries
from embedmill.lease import Lease, LeaseName, take_lease
from embedmill.manifest import IndexVersion, Manifest
from embedmill.run_context import RunContext, utc_now, who
from embedmill.run_report import (
    Pipeline,
    RunReport,
    line_of,
    read_reports,
    start_run,
    write_report,
)
from embedmill.settings import Settings
from embedmill.versioning import begin_version, version_for_ingest, version_for_reembed
from embedmill.workspace import LocalWorkspace
from pipelines.adding_up import require_sums
from pipelines.execution import Execution
from pipelines.failed_runs import leave_report, status_by
from pipelines.pools import PoolSizes, pool_sizes
from pipelines.run_options import RunOptions
from pipelines.small_run import Beginning, OutgrownError, SmallRun

# Of the pipelines that have an execution.
_EMBEDDING = {"ingest", "replay", "reembed"}


class OpenVersion:
    """An index version that a run works on, under a lease.

    Attributes:
        context: what workers need to know; has a run id once an execution began.
    """

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        options: RunOptions,
        lease: Lease,
        version: IndexVersion,
    ) -> None:
        """Continue a version; one that the manifest does not have yet is begun."""
        self._settings = settings
        self._pipeline: Pipeline = pipeline
        self._options = options
        self._lease = lease
        self._workspace = workspace_of(settings)
        self._manifest = Manifest(self._workspace, settings.index)
        self._state = begin_version(self._workspace, self._manifest, settings.index, version)
        self._version = version
        self.context = RunContext(
            settings=settings,
            run="",
            version=version.name,
            collection=version.collection,
            chunking=version.chunking,
            embedding=version.embedding,
        )

    @property
    def current(self) -> IndexVersion:
        """The version that is worked on, as the manifest has it now."""
        return self._state.version(self._version.number)

    @property
    def last_run_was_killed(self) -> bool:
        """Whether the newest run of the index has no report: its process ended in the middle."""
        newest = next(read_reports(self._workspace, self._settings.index), None)
        return newest is not None and newest[1] is None

    def execution(self, executor: Executor, small: SmallRun | None = None) -> Execution:
        """Start a run on it; one that is more than ``small`` goes on over ``options.larger``."""
        begun = Beginning(self._pipeline, utc_now(), time.monotonic())
        # First what may be refused, a cluster that does not answer for instance: no run was begun.
        by_jobs, sizes = self._by_jobs(), self._pool_sizes(executor)
        run = start_run(
            self._workspace,
            self._settings.index,
            begun.at,
            pipeline=self._pipeline,
            version=self._version.name,
        )
        self.context = replace(self.context, run=run, by_jobs=by_jobs)
        return Execution(
            self.context, executor, self._options, self._lease, begun, sizes, small=small
        )

    def _pool_sizes(self, executor: Executor) -> PoolSizes:
        return pool_sizes(self._settings, executor, self._version.embedding)

    def _by_jobs(self) -> bool:
        """Whether jobs embed: where the settings ask for none, as long as earlier ones are open."""
        if uses_jobs(self._settings):
            return True
        left = jobs_left(self._settings, self.context, self._workspace)
        if left.jobs and self._pipeline in _EMBEDDING:
            self._options.on_notice(left.notice(waits=self._options.wait_for_jobs))
        return bool(left)

    def run(self, execution: Execution, work: Callable[[Execution], None]) -> RunReport:
        """Do the work, check the counts, record the version; leave a report however it ends."""
        try:
            try:
                work(execution)
            except OutgrownError as outgrown:
                execution = self._moved(execution, outgrown)
                work(execution)
            if execution.parked:
                report = self._with_jobs(execution.report("waiting"))
                write_report(self._workspace, report)
                return report
            execution.count()
            report = self._with_jobs(execution.report("succeeded"))
            require_sums(self._workspace, report)
            report = self._record(execution, report)
            if self._may_compact(report):
                execution.compact(spare=SPARE_SEGMENTS)
            if report.changed_anything:
                execution.tidy()
        except BaseException as error:
            self._report_failure(execution, error)
            raise
        write_report(self._workspace, report)
        return report

    @contextmanager
    def reported(self, execution: Execution) -> Iterator[None]:
        """Leave a report however it ends: a run without one passes for killed."""
        try:
            yield
        except BaseException as error:
            self._report_failure(execution, error)
            raise
        write_report(self._workspace, execution.report("succeeded"))

    def _moved(self, execution: Execution, outgrown: OutgrownError) -> Execution:
        """The same run over the larger executor; what was committed stays."""
        larger = self._options.larger
        assert larger is not None
        self._options.on_notice(f"{outgrown}: starting workers (--local goes on without)")
        # A worker may hold a store that has one owner.
        execution.executor.close()
        sizes = self._pool_sizes(larger)
        return Execution(self.context, larger, self._options, self._lease, execution.begun, sizes)

    def _jobs(self) -> Sequence[dict[str, Any]]:
        """Embedding jobs of the version that have ended, oldest first."""
        if not isinstance(self._settings.embedder, HAVING_JOBS):
            return ()
        records = job_records(self._settings, self.context, self._workspace)
        return summaries(records.all(), price_per_million(self._settings.embedder))

    def _with_jobs(self, report: RunReport) -> RunReport:
        """The report with the embedding jobs that ended in its run, and those that are open."""
        ended = [job for job in self._jobs() if (job["ended"] or "") >= report.started]
        still = open_jobs(self._settings, self.context, self._workspace)
        return replace(
            report, jobs=tuple(ended), open_jobs=still.needed, unneeded_jobs=still.unneeded
        )

    def _report_failure(self, execution: Execution, error: BaseException) -> None:
        report = execution.report(status_by(error), error=line_of(error))
        # From a workspace that is gone, or lacks a part, no jobs can be read.
        with suppress(EmbedmillError):
            report = self._with_jobs(report)
        leave_report(self._workspace, report)

    def _may_compact(self, report: RunReport) -> bool:
        """Whether the chunks are this run's alone: what is built beside it reads them as well."""
        chunking = self._version.chunking
        built = (v for v in self._state.versions if v.state in {"building", "ready"})
        beside = any(v.chunking == chunking and v.number != self._version.number for v in built)
        return report.changed_anything and self._pipeline != "reembed" and not beside

    def _record(self, execution: Execution, report: RunReport) -> RunReport:
        """Record what the version holds now; the first complete version of an index goes live.

        Only an ingest knows that a version is complete: it has read the whole source. A version
        that was built beside the published one is ready to be published.

        Returns:
            The report, with what the gates say of a first version.

        Raises:
            RefusedError: it is complete, and readers do not see it: its records are not right.
        """
        first = self._state.published is None and self._pipeline == "ingest"
        refusal = None
        # A store that only counts holds nothing to look at.
        if first and self._settings.store.kind != "discard":
            results = execution.first_gates(self.current)
            report = replace(report, gates=tuple(result.to_json() for result in results))
            refusal = refusal_of_first(self._settings, self.current, results)
        arrives = first and refusal is None
        self._state = self._manifest.amend(
            self._version.number, lambda version: self._recorded(version, report, arrives=arrives)
        )
        if refusal is not None:
            self._tell_of_refusal(report, refusal)
            raise refusal
        published = self._state.published
        if published is not None and published.number == self._version.number:
            execution.mirror(self._state)
            if first or self._settings.hooks:
                self._tell()
        return report

    def _tell_of_refusal(self, report: RunReport, refusal: RefusedError) -> None:
        line = {"at": utc_now(), "by": who(), "run": report.run}
        index = self._settings.index
        event = refusal_event(index, self.current, None, line, str(refusal))
        keep_event(self._workspace, index, report.run, event)
        hooks, sleep = self._settings.hooks, self._options.sleep
        announce(self._workspace, index, report.run, hooks, at=utc_now(), sleep=sleep)

    def _tell(self) -> None:
        """Tell of the publication whoever was not told of it yet."""
        tell_of_arrival(
            self._workspace,
            self._settings.index,
            self._settings.hooks,
            at=utc_now(),
            sleep=self._options.sleep,
        )

    def _recorded(self, version: IndexVersion, report: RunReport, *, arrives: bool) -> IndexVersion:
        """What the manifest says of the version after the run; ``arrives``: readers see it now."""
        built = self._pipeline == "reembed" and version.state in {"building", "retired"}
        # A first version that its gates keep from readers is complete all the same.
        built = built or (bool(report.gates) and not arrives and version.state == "building")
        version = replace(version, gates=report.gates) if report.gates else version
        holds = {"documents": report.live_documents, "records": report.live_records}
        # A run that was killed after its last segment has left the counts of the run before.
        recorded = {name: version.counts.get(name) for name in holds}
        unchanged = not report.changed_anything and recorded == holds
        if not arrives and not built and unchanged:
            return version
        counts = {**holds, "dead_letters": report.dead_letters}
        version = replace(version, counts=counts, last_run=report.run, jobs=tuple(self._jobs()))
        if not arrives and not built:
            return version
        now = utc_now()
        event = "published" if arrives else "ready"
        version = version.noted(event, at=now, by=who(), run=report.run)
        if arrives:
            return replace(version, state="published", published=now)
        return replace(version, state="ready", retired=None)


@contextmanager
def open_version(
    settings: Settings, pipeline: Pipeline, options: RunOptions
) -> Iterator[OpenVersion]:
    """Hold the lease on the index and open the version that a run continues, or the first one.

    Raises:
        IndexLockedError: another run holds the index.
        RecipeMismatchError: the index has another recipe.
        RefusedError: or another shard count.
    """
    workspace = workspace_of(settings)
    manifest = Manifest(workspace, settings.index)
    if pipeline != "ingest" and not manifest.read().versions:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet",
            hint="run embedmill ingest SETTINGS first",
        )
    with _held(settings, pipeline, options, "lease") as lease:
        wanted = recipes_of(settings)
        version = version_for_ingest(settings, manifest.read(), wanted, now=utc_now())
        yield OpenVersion(settings, pipeline, options, lease, version)


@contextmanager
def open_build(
    settings: Settings, pipeline: Pipeline, options: RunOptions
) -> Iterator[OpenVersion | None]:
    """Hold the lease on building and open the version with the settings' recipe.

    Yields:
        None when the published version has that recipe.

    Raises:
        IndexLockedError: another build goes on.
        RefusedError: nothing is published yet, or the shard count is another.
    """
    manifest = Manifest(workspace_of(settings), settings.index)
    with _held(settings, pipeline, options, "build-lease") as lease:
        wanted = recipes_of(settings)
        version = version_for_reembed(settings, manifest.read(), wanted, now=utc_now())
        if version is None:
            yield None
        else:
            yield OpenVersion(settings, pipeline, options, lease, version)


@contextmanager
def _held(
    settings: Settings, pipeline: Pipeline, options: RunOptions, name: LeaseName
) -> Iterator[Lease]:
    workspace = workspace_of(settings)
    with take_lease(
        workspace,
        settings.index,
        pipeline,
        name=name,
        take_over=options.take_over,
        sleep=options.sleep,
    ) as lease:
        if isinstance(workspace, LocalWorkspace):
            workspace.sweep()
        yield lease
