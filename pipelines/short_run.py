"""A run that needs no workers: an id, a report however it ends, and the store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from embedmill.assembly import store_of, workspace_of
from embedmill.manifest import IndexVersion
from embedmill.run_context import utc_now
from embedmill.run_report import Pipeline, RunReport, RunStatus, line_of, start_run, write_report
from embedmill.settings import Settings
from embedmill.vector_store import VectorStore
from pipelines.failed_runs import leave_report, status_by


@contextmanager
def short_run(
    settings: Settings, pipeline: Pipeline, version: IndexVersion
) -> Iterator[tuple[str, VectorStore]]:
    """Open the store, take a run id, and leave a report at the end.

    Yields:
        The run's id and the store.

    Raises:
        IndexLockedError: somebody else has the store; no run was begun.
    """
    store = store_of(settings)
    try:
        with _reported(settings, pipeline, version) as run:
            yield run, store
    finally:
        store.close()


@contextmanager
def _reported(settings: Settings, pipeline: Pipeline, version: IndexVersion) -> Iterator[str]:
    workspace = workspace_of(settings)
    now, clock = utc_now(), time.monotonic()
    run = start_run(workspace, settings.index, now, pipeline=pipeline, version=version.name)

    def report(status: RunStatus, error: str = "") -> RunReport:
        return RunReport(
            run=run,
            index=settings.index,
            version=version.name,
            pipeline=pipeline,
            executor="inline",
            status=status,
            started=now,
            seconds=round(time.monotonic() - clock, 3),
            error=error,
        )

    try:
        yield run
    except BaseException as error:
        leave_report(workspace, report(status_by(error), line_of(error)))
        raise
    write_report(workspace, report("succeeded"))
