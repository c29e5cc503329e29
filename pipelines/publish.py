"""Publish and roll back: which version readers are sent to, changed in one step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from embedmill.announcing import Delivery, announce, keep_event
from embedmill.arrivals import refusal_event, tell_of_arrival
from embedmill.assembly import recipes_of, workspace_of
from embedmill.errors import DamagedFileError, RefusedError
from embedmill.executor import Executor
from embedmill.gate import GateResult, failed_gates
from embedmill.gates.run import run_gates
from embedmill.lease import take_lease
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.publishing import (
    Arrival,
    Switch,
    mirror,
    require_collection,
    require_publishable,
    rollback_target,
    switch,
)
from embedmill.run_context import utc_now, who
from embedmill.settings import Settings
from embedmill.vector_store import VectorStore, finish_collection
from embedmill.versioning import built_version, recipe_changes
from embedmill.work_left import work_left
from pipelines.apply_stage import WRITE
from pipelines.embed_stage import EMBED
from pipelines.reembed import reembed
from pipelines.run_options import RunOptions
from pipelines.short_run import short_run

log = logging.getLogger(__name__)

Gates = Callable[[Settings, IndexVersion, IndexVersion | None, VectorStore], Sequence[GateResult]]


@dataclass(frozen=True, slots=True)
class Publication:
    """What a publication or a rollback did.

    Attributes:
        run: its id.
        switch: what readers saw before and see now.
        lacking: segments that the version now published has not taken in: after a rollback, what
            syncs brought since it was retired.
        told: what became of telling others.
        gates: what the version showed; empty where none were asked.
    """

    run: str
    switch: Switch
    lacking: int
    told: Sequence[Delivery] = ()
    gates: Sequence[GateResult] = ()


def publish(
    settings: Settings,
    executor: Executor,
    options: RunOptions,
    *,
    number: int | None = None,
    force: bool = False,
    tells: bool = True,
    gates: Gates = run_gates,
) -> Publication:
    """Send readers to a version that is complete, checked and caught up.

    No sync runs meanwhile: what was committed before is in the version when readers see it.

    Args:
        settings: of the index.
        executor: for the catching up; closed by the caller.
        options: of this run.
        number: of the version; without it the one that the settings ask for, or else the newest
            that is ready.
        force: publish although a gate speaks against it; what they say is recorded all the same.
        tells: others of it; else that is left to :func:`tell`.
        gates: that it must pass.

    Raises:
        RefusedError: readers see what they saw; the message says what is missing.
        IndexLockedError: a run or a build goes on.
        StopRunError: the manifest says it, and the alias could not be moved.
    """
    workspace = workspace_of(settings)
    manifest = Manifest(workspace, settings.index)
    with take_lease(
        workspace, settings.index, "publish", take_over=options.take_over, sleep=options.sleep
    ):
        target = _target(settings, manifest.read(), number)
        if target.state != "published":
            require_publishable(target)
            _require_nothing_lacking(settings, executor, options, target)
        results: Sequence[GateResult] = ()
        try:
            with short_run(settings, "publish", target) as (run, store):
                require_collection(store, target)
                finish_collection(store, target.collection)
                if target.state != "published":
                    results = _held_to(gates, settings, manifest, store, target.number)
                    if not force:
                        _require_passed(settings, manifest, target, results, run)
                done = _switched(settings, manifest, store, target.number, "published", run)
        except RefusedError as error:
            if error.code == "gates":
                # After the store is let go: some of those who are told will want it.
                hooks, sleep = settings.hooks, options.sleep
                announce(workspace, settings.index, run, hooks, at=utc_now(), sleep=sleep)
            raise
    settled = _settled(settings, run, done)
    told = tell(settings, sleep=options.sleep) if tells else ()
    return replace(settled, gates=results, told=told)


def rollback(
    settings: Settings,
    *,
    number: int | None = None,
    tells: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> Publication:
    """Take readers back to a version that they saw before, as it was left; takes seconds.

    Nothing else is waited for: neither a sync nor a build, nor any gate.

    Args:
        settings: of the index; of any of its recipes.
        number: of the version; without it the one that was published before.
        tells: others of it; else that is left to :func:`tell`.
        sleep: waits between tries to tell others.

    Raises:
        RefusedError: there is none to go back to.
        StopRunError: the manifest says it, and the alias could not be moved.
    """
    manifest = Manifest(workspace_of(settings), settings.index)
    target = rollback_target(manifest.read(), number)
    require_publishable(target)
    with short_run(settings, "rollback", target) as (run, store):
        require_collection(store, target)
        done = _switched(settings, manifest, store, target.number, "restored", run)
    settled = _settled(settings, run, done)
    return replace(settled, told=tell(settings, sleep=sleep)) if tells else settled


def tell(settings: Settings, *, sleep: Callable[[float], None] = time.sleep) -> Sequence[Delivery]:
    """Tell the hooks which version readers see, as far as they were not told yet."""
    workspace = workspace_of(settings)
    return tell_of_arrival(workspace, settings.index, settings.hooks, at=utc_now(), sleep=sleep)


def _target(settings: Settings, state: ManifestState, number: int | None) -> IndexVersion:
    if number is not None:
        return state.version(number)
    wanted = recipes_of(settings)
    if state.published is not None and not recipe_changes(settings, state.published, wanted):
        return state.published
    built = built_version(settings, state, wanted)
    if built is not None:
        return built
    ready = [version for version in state.versions if version.state == "ready"]
    if ready:
        return ready[-1]
    raise RefusedError(
        f"index {settings.index!r} has no version that is ready to be published",
        code="not-ready",
        hint="build one with: embedmill reembed SETTINGS"
        if state.published
        else "run embedmill ingest SETTINGS to its end: the first complete version goes live by "
        "itself",
    )


def _require_nothing_lacking(
    settings: Settings, executor: Executor, options: RunOptions, target: IndexVersion
) -> None:
    """Let a version take in what syncs have committed since it was built."""
    workspace = workspace_of(settings)
    if not work_left(workspace, settings.index, target):
        return
    if not recipe_changes(settings, target, recipes_of(settings)):
        reembed(settings, executor, options)
        for pool in (EMBED, WRITE):
            # What they hold, a store or a model, is needed here now.
            executor.add_pool(pool, ())
    left = work_left(workspace, settings.index, target)
    if left:
        raise RefusedError(
            f"{target.name} lacks {left}; it would not be complete when readers see it",
            code="not-complete",
            hint="with the settings of that version run embedmill reembed SETTINGS, then publish "
            f"again; or embedmill rollback {target.number} -c SETTINGS takes it as it is",
        )


def _held_to(
    gates: Gates, settings: Settings, manifest: Manifest, store: VectorStore, number: int
) -> Sequence[GateResult]:
    """Ask the gates, and record what they say."""
    state = manifest.read()
    results = gates(settings, state.version(number), state.published, store)
    said = tuple(result.to_json() for result in results)
    manifest.amend(number, lambda version: replace(version, gates=said))
    return results


def _require_passed(
    settings: Settings,
    manifest: Manifest,
    target: IndexVersion,
    results: Sequence[GateResult],
    run: str,
) -> None:
    failed = failed_gates(results)
    if not failed:
        return
    listed = "\n".join(f"  {gate.name}: {gate.message}" for gate in failed)
    line = {"at": utc_now(), "by": who(), "run": run}
    published = manifest.read().published
    event = refusal_event(settings.index, target, published, line, listed)
    keep_event(workspace_of(settings), settings.index, run, event)
    raise RefusedError(
        f"{target.name} does not pass {len(failed)} of {len(results)} gates; readers see what they "
        f"saw:\n{listed}",
        code="gates",
        hint="see all figures with: embedmill evaluate SETTINGS; mend what is wrong, change gates "
        "in the settings, or publish all the same with --force",
    )


def _switched(
    settings: Settings,
    manifest: Manifest,
    store: VectorStore,
    number: int,
    arrival: Arrival,
    run: str,
) -> Switch:
    done = switch(manifest, number, arrival=arrival, at=utc_now(), by=who(), run=run)
    return replace(done, alias_moved=mirror(manifest, store, settings.index))


def _settled(settings: Settings, run: str, done: Switch) -> Publication:
    """What was done, after the store is let go: some of those who are told will want it."""
    lacking = 0
    try:
        lacking = work_left(workspace_of(settings), settings.index, done.after).store
    except DamagedFileError as error:
        # Readers are there already; a way back is not to fail for what concerns syncs alone.
        log.warning("what %s lacks is not known: %s; %s", done.after.name, error, error.hint)
    return Publication(run, done, lacking)
