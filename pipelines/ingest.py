"""Ingest: bring an index in line with its source, from beginning to end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace

from embedmill.assembly import build_source, recipes_of, require_local_store, workspace_of
from embedmill.errors import CountsMismatchError, EmbedmillError, StopRunError
from embedmill.executor import Executor
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.run_context import RunContext, utc_now
from embedmill.run_report import Pipeline, RunReport, RunStatus, start_run, write_report
from embedmill.settings import Settings
from embedmill.versioning import version_for_ingest
from embedmill.workspace import Workspace
from pipelines.execution import Execution, InterruptedRunError, RunOptions
from pipelines.pools import pool_sizes


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
    splits = build_source(settings).splits()
    with_version = open_version(settings)
    execution = with_version.execution(executor, options or RunOptions(), "ingest")

    def work() -> None:
        execution.prepare()
        execution.scan(splits)
        execution.remove_gone()

    return with_version.run(execution, work)


class OpenVersion:
    """An index version that a run works on."""

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        state: ManifestState,
        version: IndexVersion,
    ) -> None:
        self._settings = settings
        self._workspace = workspace
        self._manifest = Manifest(workspace, settings.index)
        self._state = state
        self._version = version

    def execution(self, executor: Executor, options: RunOptions, pipeline: Pipeline) -> Execution:
        """Start a run on it."""
        version = self._version
        started = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pipeline": pipeline,
            "version": version.name,
        }
        context = RunContext(
            settings=self._settings,
            run=start_run(self._workspace, self._settings.index, utc_now(), started),
            version=version.name,
            collection=version.collection,
            chunking=version.chunking,
            embedding=version.embedding,
        )
        sizes = pool_sizes(self._settings, executor)
        return Execution(context, executor, options, sizes, pipeline)

    def run(self, execution: Execution, work: Callable[[], None]) -> RunReport:
        """Do the work, check the counts, record the version; leave a report however it ends."""
        try:
            work()
            execution.count_store()
            report = execution.report("succeeded")
            _require_sums(report)
            self._record(execution, report)
        except EmbedmillError as error:
            interrupted = isinstance(error, InterruptedRunError)
            status: RunStatus = "interrupted" if interrupted else "failed"
            write_report(self._workspace, execution.report(status, error=str(error)))
            raise
        write_report(self._workspace, report)
        return report

    def _record(self, execution: Execution, report: RunReport) -> None:
        """Record what the version holds now; the first complete version of an index goes live."""
        first = self._state.published is None
        if not first and not report.changed_anything:
            return
        counts = {
            "documents": report.live_documents,
            "records": report.live_records,
            "dead_letters": report.dead_letters,
        }
        version = replace(self._version, counts=counts, last_run=report.run)
        if first:
            execution.publish()
            version = replace(version, state="published", published=utc_now())
        self._manifest.commit(version, self._state)


def open_version(settings: Settings) -> OpenVersion:
    """The version that a run on these settings continues, or the first one of a new index.

    Raises:
        RecipeMismatchError: the index has another recipe.
        RefusedError: or another shard count.
    """
    workspace = workspace_of(settings)
    manifest = Manifest(workspace, settings.index)
    state = manifest.read()
    version = version_for_ingest(settings, state, recipes_of(settings), now=utc_now())
    if version.number not in {known.number for known in state.versions}:
        state = manifest.commit(version, state)
    return OpenVersion(settings, workspace, state, version)


def _require_sums(report: RunReport) -> None:
    problems = report.problems()
    if problems:
        raise CountsMismatchError(
            "the counts of this run do not add up: " + "; ".join(problems),
            hint="if the store was restored or emptied by hand, delete the folder "
            f"indexes/{report.index}/applied in the workspace and run the same command again: "
            "all records are written again, nothing is embedded again",
        )
    documents, chunks = report.documents, report.chunks
    for what, dead, total in (
        ("documents", documents.dead, documents.read),
        ("chunks", chunks.dead, chunks.chunks),
    ):
        if total and dead == total:
            raise StopRunError(
                f"all {total} {what} of this run died",
                code="all-dead",
                hint="see why with: embedmill dlq list",
            )
