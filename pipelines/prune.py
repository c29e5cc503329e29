"""Prune: delete what versions that nobody needs any more have left."""

from __future__ import annotations

from dataclasses import replace

from embedmill.assembly import workspace_of
from embedmill.copying import OtherStore
from embedmill.lease import Lease, LeaseName, take_lease
from embedmill.manifest import Manifest, ManifestState
from embedmill.own_collection import owns
from embedmill.pruning import Pruned, Pruner, give_up, prunable
from embedmill.publishing import mirror, require_known_alias
from embedmill.run_context import utc_now, who
from embedmill.settings import Settings
from pipelines.run_options import RunOptions
from pipelines.short_run import short_run


def prune(
    settings: Settings, options: RunOptions, *, number: int | None = None, dry_run: bool = False
) -> Pruned:
    """Delete the records, vectors and chunks that only pruned versions need, and old reports.

    What readers see, what is being built and what ``keep`` protects stays. Killed at any point, it
    can be run again; it then also deletes what the first call left. A collection that the index has
    not filled stays, whatever its name.

    Args:
        settings: of the index.
        options: of this run.
        number: only this version, whatever ``keep`` says.
        dry_run: say what would go, change nothing.

    Raises:
        RefusedError: nothing is published, the version is in use, or readers see a collection of
            which the manifest knows nothing.
        IndexLockedError: a run or a build goes on.
    """
    workspace = workspace_of(settings)
    manifest = Manifest(workspace, settings.index)
    if dry_run:
        return _chosen(settings, manifest.read(), number)

    def held(name: LeaseName) -> Lease:
        return take_lease(
            workspace,
            settings.index,
            "prune",
            name=name,
            take_over=options.take_over,
            sleep=options.sleep,
        )

    with held("lease"), held("build-lease"):
        state = manifest.read()
        chosen = _chosen(settings, state, number)
        assert state.published is not None
        with short_run(settings, "prune", state.published) as (run, store):
            # A store refuses to drop what its alias points at: that must not lag.
            require_known_alias(state, store.alias_target(settings.index), settings.index)
            mirror(manifest, store, settings.index)
            pruner = Pruner(
                workspace, settings.index, manifest, store, OtherStore.of(settings.store)
            )
            files = pruner.prune(chosen.versions, at=utc_now(), by=who(), run=run)
            files += pruner.prune_runs(settings.keep.runs)
        return replace(chosen, files=files)


def _chosen(settings: Settings, state: ManifestState, number: int | None) -> Pruned:
    workspace, own = workspace_of(settings), OtherStore.of(settings.store)
    chosen = prunable(state, settings.keep, now=utc_now(), number=number)
    not_ours = frozenset(
        version.number
        for version in chosen.versions
        if not owns(workspace, settings.index, version.collection, own)
    )
    return replace(chosen, not_ours=not_ours)


def retire(settings: Settings, number: int) -> ManifestState:
    """Give a version up that readers do not see.

    Raises:
        RefusedError: readers see it.
    """
    manifest = Manifest(workspace_of(settings), settings.index)
    return give_up(manifest, number, at=utc_now(), by=who())
