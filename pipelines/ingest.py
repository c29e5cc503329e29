"""Ingest: bring an index in line with its source, from beginning to end."""

from __future__ import annotations

from embedmill.assembly import build_source, require_local_store
from embedmill.executor import Executor
from embedmill.judgements import questions_of
from embedmill.rate_assembly import require_keeper
from embedmill.run_report import RunReport
from embedmill.settings import Settings
from embedmill.settings_file import require_secrets
from pipelines.execution import Execution
from pipelines.open_version import open_version
from pipelines.run_options import RunOptions
from pipelines.small_run import SmallRun


def ingest(settings: Settings, executor: Executor, options: RunOptions | None = None) -> RunReport:
    """Bring the index in line with its source; running it again resumes and changes nothing else.

    Args:
        settings: of the index.
        executor: runs the workers; closed by the caller. With ``options.larger`` it does no more
            than a small run.
        options: of this run.

    Returns:
        The report of a run whose counts add up; dead rows make it ``partial``.

    Raises:
        RefusedError: bad source, other recipe, locked store.
        DeletionsWithheldError: too many documents are gone; all but the deletions is done.
        StopRunError: the run ended early; what was committed is kept, a report was written.
    """
    require_local_store(settings, executor.name)
    require_keeper(settings.embedder)
    # Elsewhere the machines that need them may have them, and this one not.
    if executor.name == "inline":
        require_secrets(settings)
    options = options or RunOptions()
    if options.larger is not None:
        require_local_store(settings, options.larger.name)
    splits = build_source(settings).splits()

    def work(execution: Execution) -> None:
        execution.prepare(splits=splits)
        execution.scan(splits)
        execution.remove_gone()

    with open_version(settings, "ingest", options) as version:
        if version.current.published is None and executor.name == "inline":
            # The gates of a first version read them, when all is embedded.
            questions_of(settings.gates)
        if options.larger is None:
            return version.run(version.execution(executor), work)
        if version.last_run_was_killed:
            options.on_notice(
                "the last run left no report, so it was killed: this one has workers, of which one "
                "may die"
            )
            return version.run(version.execution(options.larger), work)
        small = SmallRun(settings.run.inline_chunks)
        return version.run(version.execution(executor, small), work)
