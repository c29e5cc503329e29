"""Ingest: bring an index in line with its source, from beginning to end."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from embedmill.assembly import build_source, recipes_of, require_local_store, workspace_of
from embedmill.compacting import SPARE_SEGMENTS
from embedmill.errors import CountsMismatchError, EmbedmillError, RefusedError, StopRunError
from embedmill.executor import Executor
from embedmill.job_assembly import job_records, price_per_million, uses_jobs
from embedmill.job_summary import summaries
from embedmill.lease import Lease, take_lease
from embedmill.manifest import IndexVersion, Manifest
from embedmill.run_context import RunContext, utc_now
from embedmill.run_report import Pipeline, RunReport, RunStatus, start_run, write_report
from embedmill.settings import Settings
from embedmill.versioning import version_for_ingest
from embedmill.workspace import LocalWorkspace
from pipelines.execution import Execution, InterruptedRunError, RunOptions

log = logging.getLogger(__name__)
# So many rows do not all die by themselves: the model, the store or the settings are to blame.
_FEW = 10


def ingest(settings: Settings, executor: Executor, options: RunOptions | None = None) -> RunReport:
    """Bring the index in line with its source; running it again resumes and changes nothing else.

    Args:
        settings: of the index.
        executor: runs the workers; closed by the caller.
        options: of this run.

    Returns:
        The report of a run whose counts add up; dead rows make it ``partial``.

    Raises:
        RefusedError: bad source, other recipe, locked store, too many deletions.
        StopRunError: the run ended early; what was committed is kept, a report was written.
    """
    require_local_store(settings, executor.name)
    options = options or RunOptions()
    splits = build_source(settings).splits()
    with open_version(settings, "ingest", options) as version:
        execution = version.execution(executor)

        def work() -> None:
            execution.prepare()
            execution.scan(splits)
            execution.remove_gone()

        return version.run(execution, work)


class OpenVersion:
    """An index version that a run works on, under a lease.

    Attributes:
        context: what workers need to know; has a run id once an execution began.
    """

    @property
    def versions(self) -> Sequence[IndexVersion]:
        """All versions of the index, as the manifest has them now."""
        return self._state.versions

    def __init__(
        self, settings: Settings, pipeline: Pipeline, options: RunOptions, lease: Lease
    ) -> None:
        """Find the version that the run continues, or begin the first one.

        Raises:
            RecipeMismatchError: the index has another recipe.
            RefusedError: or another shard count.
        """
        self._settings = settings
        self._pipeline: Pipeline = pipeline
        self._options = options
        self._lease = lease
        self._workspace = workspace_of(settings)
        self._manifest = Manifest(self._workspace, settings.index)
        self._state = self._manifest.read()
        wanted = recipes_of(settings)
        self._version = version_for_ingest(settings, self._state, wanted, now=utc_now())
        if self._version.number not in {known.number for known in self._state.versions}:
            self._state = self._manifest.commit(self._version, self._state)
        self.context = RunContext(
            settings=settings,
            run="",
            version=self._version.name,
            collection=self._version.collection,
            chunking=self._version.chunking,
            embedding=self._version.embedding,
        )

    def execution(self, executor: Executor) -> Execution:
        """Start a run on it."""
        started = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pipeline": self._pipeline,
            "version": self._version.name,
        }
        run = start_run(self._workspace, self._settings.index, utc_now(), started)
        self.context = replace(self.context, run=run)
        return Execution(self.context, executor, self._options, self._pipeline, self._lease)

    def run(self, execution: Execution, work: Callable[[], None]) -> RunReport:
        """Do the work, check the counts, record the version; leave a report however it ends."""
        try:
            work()
            if execution.parked:
                report = self._with_jobs(execution.report("waiting"))
                self.leave_report(report)
                return report
            execution.count()
            report = self._with_jobs(execution.report("succeeded"))
            _require_sums(report)
            self._record(execution, report)
            if report.changed_anything:
                execution.compact(self._state.versions, spare=SPARE_SEGMENTS)
        except EmbedmillError as error:
            interrupted = isinstance(error, InterruptedRunError)
            status: RunStatus = "interrupted" if interrupted else "failed"
            self._report_failure(self._with_jobs(execution.report(status, error=str(error))))
            raise
        self.leave_report(report)
        return report

    def _jobs(self) -> Sequence[dict[str, Any]]:
        """Embedding jobs of the version that have ended, oldest first."""
        if not uses_jobs(self._settings):
            return ()
        records = job_records(self._settings, self.context, self._workspace)
        return summaries(records.all(), price_per_million(self._settings.embedder))

    def _with_jobs(self, report: RunReport) -> RunReport:
        """The report with the embedding jobs that ended in its run."""
        ended = [job for job in self._jobs() if (job["ended"] or "") >= report.started]
        return replace(report, jobs=tuple(ended))

    def leave_report(self, report: RunReport) -> None:
        """Write the report of the run, by which it has ended."""
        write_report(self._workspace, report)

    def _report_failure(self, report: RunReport) -> None:
        try:
            write_report(self._workspace, report)
        except EmbedmillError as error:
            # The run's own error matters more; a full disk takes no report either.
            log.warning("no report was written: %s", error)

    def _record(self, execution: Execution, report: RunReport) -> None:
        """Record what the version holds now; the first complete version of an index goes live.

        Only an ingest knows that a version is complete: it has read the whole source.
        """
        first = self._state.published is None and self._pipeline == "ingest"
        holds = {"documents": report.live_documents, "records": report.live_records}
        # A run that was killed after its last segment has left the counts of the run before.
        recorded = {name: self._version.counts.get(name) for name in holds}
        if not first and not report.changed_anything and recorded == holds:
            return
        counts = {**holds, "dead_letters": report.dead_letters}
        version = replace(
            self._version, counts=counts, last_run=report.run, jobs=tuple(self._jobs())
        )
        if first:
            execution.publish()
            version = replace(version, state="published", published=utc_now())
        self._state = self._manifest.commit(version, self._state)


@contextmanager
def open_version(
    settings: Settings, pipeline: Pipeline, options: RunOptions
) -> Iterator[OpenVersion]:
    """Hold the lease on the index and open the version that a run continues.

    Raises:
        IndexLockedError: another run holds the index.
        RecipeMismatchError: the index has another recipe.
        RefusedError: or another shard count.
    """
    workspace = workspace_of(settings)
    if pipeline != "ingest" and not Manifest(workspace, settings.index).read().versions:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet", hint="run embedmill ingest first"
        )
    with take_lease(
        workspace,
        settings.index,
        pipeline,
        take_over=options.take_over,
        sleep=options.sleep,
    ) as lease:
        if isinstance(workspace, LocalWorkspace):
            workspace.sweep()
        yield OpenVersion(settings, pipeline, options, lease)


def _require_sums(report: RunReport) -> None:
    problems = report.problems()
    if problems:
        raise CountsMismatchError(
            "the counts of this run do not add up: " + "; ".join(problems),
            hint="see what differs with: embedmill audit; put it right with: embedmill audit "
            "--repair (nothing is embedded for it)",
        )
    documents, chunks = report.documents, report.chunks
    # A few rows that die while others live are to blame themselves.
    few = _FEW if report.live_records > 0 else 1
    for what, dead, total in (
        ("documents", documents.dead, documents.read),
        ("chunks", chunks.dead, chunks.chunks),
    ):
        if total >= few and dead == total:
            raise StopRunError(
                f"all {total} {what} of this run died",
                code="all-dead",
                hint="see why with: embedmill dlq list -c SETTINGS",
            )
