"""Reembed: build the version that the settings ask for beside the one that readers see."""

from __future__ import annotations

from dataclasses import dataclass

from embedmill.assembly import build_source, require_local_store, workspace_of
from embedmill.executor import Executor
from embedmill.manifest import IndexVersion, Manifest
from embedmill.rate_assembly import require_keeper
from embedmill.run_report import RunReport
from embedmill.settings import Settings
from embedmill.vector_stores.build import store_limits
from pipelines.execution import Execution
from pipelines.open_version import open_build
from pipelines.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did.

    Attributes:
        report: of its run.
        version: that was built, as the manifest has it now.
        from_source: the chunking recipe differs as well, so the source was read.
    """

    report: RunReport
    version: IndexVersion
    from_source: bool


def reembed(
    settings: Settings, executor: Executor, options: RunOptions | None = None
) -> Rebuilt | None:
    """Build the version with the settings' recipe, from the stored chunks where these fit.

    The published version serves meanwhile, and syncs of it go on: the build holds a lease of its
    own, and takes in what they commit until nothing is new. Running it again resumes, or catches
    up.

    Args:
        settings: of the index, with the recipe that is wanted.
        executor: runs the workers; closed by the caller.
        options: of this run.

    Returns:
        None when the published version has this recipe: there is nothing to do.

    Raises:
        RefusedError: nothing is published yet, locked store, another build goes on.
        StopRunError: the run ended early; what was committed is kept, a report was written.
    """
    require_local_store(settings, executor.name)
    require_keeper(settings.embedder)
    options = options or RunOptions()
    with open_build(settings, "reembed", options) as version:
        if version is None:
            return None
        published = Manifest(workspace_of(settings), settings.index).read().published
        from_source = published is None or published.chunking != version.context.chunking
        # Listing a source may fail: before the run begins, as an ingest does.
        splits = build_source(settings).splits() if from_source else []

        def work(execution: Execution) -> None:
            if from_source:
                execution.prepare()
                execution.scan(splits)
                execution.remove_gone()
            else:
                fill_from_chunks(execution, settings, new=version.current.state == "building")

        report = version.run(version.execution(executor), work)
        return Rebuilt(report, version.current, from_source)


def fill_from_chunks(execution: Execution, settings: Settings, *, new: bool) -> None:
    """Give all segments vectors and records, until no sync commits new ones.

    A store with one owner is left to the syncs while segments are embedded, which takes long, and
    is opened when all that is left is writing.

    Args:
        execution: of the run.
        settings: of the index.
        new: most segments have no vectors yet.
    """
    hold = store_limits(settings.store).writers == 1 and settings.store.kind != "memory"
    execution.prepare(rebuild=new, hold=hold)
    execution.drain()
    while execution.catch_up():
        execution.drain()
    if hold and not execution.parked:
        execution.open_store()
        execution.drain()
        while execution.catch_up():
            execution.drain()
