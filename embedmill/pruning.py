"""Pruning: what of an index may go, and letting it go.

The manifest is marked first: from then on nobody publishes the version or goes back to it. Then its
collection and its files are deleted, which may be repeated. Never deleted is what another version
that has its data still needs: chunks of a chunking recipe, vectors of two recipes; nor a collection
that another workspace fills under the name of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from embedmill.copying import OtherStore, forget_ours, note_ours
from embedmill.errors import RefusedError
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.own_collection import owns
from embedmill.plain_numbers import number_of
from embedmill.recipe import ChunkingRecipe
from embedmill.run_report import REPORT_FILES
from embedmill.vector_store import VectorStore
from embedmill.version_settings import KeepSettings
from embedmill.workspace import Workspace

# Newest manifest files that stay, for people who want to see what happened; only one is needed.
_KEPT_MANIFESTS = 100
# Paths deleted in one call.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was let go, or would be.

    Attributes:
        versions: whose records and vectors go.
        kept: retired versions that stay, each with the reason.
        files: deleted from the workspace.
        not_ours: numbers of those versions whose collection the index has not filled; it stays.
    """

    versions: Sequence[IndexVersion]
    kept: Sequence[tuple[IndexVersion, str]]
    files: int = 0
    not_ours: frozenset[int] = frozenset()


def prunable(
    state: ManifestState, keep: KeepSettings, *, now: str, number: int | None = None
) -> Pruned:
    """Decide which versions may go.

    Args:
        state: of the manifest.
        keep: what stays.
        now: UTC, ISO 8601.
        number: only this version, and whatever ``keep`` says.

    Raises:
        RefusedError: nothing is published, or the version is in use.
    """
    if state.published is None:
        raise RefusedError(
            "nothing is published: any version may be the only copy, so none is pruned",
            hint="send readers to one first: embedmill publish -c SETTINGS; to the first, "
            "embedmill ingest SETTINGS",
        )
    retired = [v for v in state.versions if v.state in {"retired", "failed"} and not v.pruned]
    if number is not None:
        return Pruned([_asked_for(state, number)], ())
    # What was given up and never seen is no way back.
    ways_back = sorted((v for v in retired if v.published), key=_retired_at, reverse=True)
    going, kept = [], []
    for version in retired:
        if version in ways_back[: keep.versions]:
            kept.append((version, f"the way back (keep.versions: {keep.versions})"))
        elif _age(version, now) < timedelta(days=keep.days):
            kept.append((version, f"retired {_retired_at(version)} (keep.days: {keep.days:g})"))
        else:
            going.append(version)
    return Pruned(going, kept)


def _asked_for(state: ManifestState, number: int) -> IndexVersion:
    version = state.version(number)
    if version.pruned:
        raise RefusedError(f"{version.name} is pruned already, {version.pruned}")
    if version.state not in {"retired", "failed"}:
        raise RefusedError(
            f"{version.name} is {version.state} and stays",
            hint=""
            if version.state == "published"
            else f"give it up first: embedmill retire {number} -c SETTINGS",
        )
    return version


def _retired_at(version: IndexVersion) -> str:
    return version.retired or version.created


def _age(version: IndexVersion, now: str) -> timedelta:
    return datetime.fromisoformat(now) - datetime.fromisoformat(_retired_at(version))


def give_up(manifest: Manifest, number: int, *, at: str, by: str) -> ManifestState:
    """Retire a version that readers do not see: it is not built on, and prune may delete it.

    Raises:
        RefusedError: readers see it.
    """

    def retired(version: IndexVersion) -> IndexVersion:
        if version.state == "published":
            raise RefusedError(
                f"readers see {version.name}; it cannot be retired",
                hint="publish another version first, or go back: embedmill rollback -c SETTINGS",
            )
        if version.state in {"retired", "failed"}:
            return version
        return replace(version, state="failed", retired=at).noted("given-up", at=at, by=by)

    return manifest.amend(number, retired)


class Pruner:
    """Deletes what pruned versions leave. Only while nobody writes to the index or builds."""

    def __init__(
        self,
        workspace: Workspace,
        index: str,
        manifest: Manifest,
        store: VectorStore,
        own: OtherStore,
    ) -> None:
        """Hold what is needed; ``own`` is what the settings call ``store``."""
        self._workspace = workspace
        self._index = index
        self._own = own
        self._folder = f"indexes/{index}"
        self._manifest = manifest
        self._store = store

    def prune(self, versions: Sequence[IndexVersion], *, at: str, by: str, run: str) -> int:
        """Mark versions, then delete what they alone need; what earlier calls left, too.

        Returns:
            Files deleted.

        Raises:
            RefusedError: a version was published meanwhile, or has embedding jobs under way.
        """
        for version in versions:
            self._require_no_open_jobs(version)
        for version in versions:
            if owns(*self._place(version)):
                # What else tells is deleted with the rest, and its name may then be another's.
                note_ours(*self._place(version))
            self._manifest.amend(version.number, lambda v: _marked(v, at=at, by=by, run=run))
        state = self._manifest.read()
        return sum(self._clear(state, version) for version in state.versions if version.pruned)

    def _clear(self, state: ManifestState, pruned: IndexVersion) -> int:
        ours = owns(*self._place(pruned))
        if ours and pruned.collection in self._store.collections():
            self._store.drop_collection(pruned.collection)
        unneeded = _unneeded(self._workspace, self._folder, state, pruned)
        deleted = _delete(self._workspace, unneeded)
        if ours:
            forget_ours(*self._place(pruned))
        return deleted

    def _place(self, version: IndexVersion) -> tuple[Workspace, str, str, OtherStore]:
        return self._workspace, self._index, version.collection, self._own

    def _require_no_open_jobs(self, version: IndexVersion) -> None:
        folder = f"{self._folder}/jobs/{version.chunking.id}/{version.embedding.id}"
        paths = {entry.path for entry in self._workspace.list(folder)}
        jobs = {path.rpartition("/")[0] for path in paths if path.endswith("/intent.json")}
        open_jobs = [job for job in jobs if f"{job}/outcome.json" not in paths]
        if open_jobs:
            raise RefusedError(
                f"{version.name} has {number_of(len(open_jobs), 'embedding job')} under way",
                hint="with the settings of that version cancel each (embedmill jobs cancel KEY -c "
                "SETTINGS), then let it be, for no run collects it: embedmill jobs cancel KEY "
                "--give-up -c SETTINGS",
            )

    def prune_runs(self, keep: int) -> int:
        """Delete the oldest reports of runs, and the oldest manifest files.

        What a version names, and what says which dead letters were tried again, stays.

        Returns:
            Files deleted.
        """
        named = {version.last_run for version in self._manifest.read().versions}
        runs: dict[str, list[str]] = {}
        for entry in self._workspace.list(f"{self._folder}/runs"):
            found = re.search(r"/runs/([^/]+)/", entry.path)
            if found:
                runs.setdefault(found.group(1), []).append(entry.path)
        old = [run for run in sorted(runs)[:-keep] if run not in named]
        going = [path for run in old if _is_plain(runs[run]) for path in sorted(runs[run])]
        return _delete(self._workspace, [*going, *self._old_manifests()])

    def _old_manifests(self) -> list[str]:
        paths = sorted(entry.path for entry in self._workspace.list(f"{self._folder}/manifest"))
        return [p for p in paths if re.search(r"/\d{8}\.json$", p)][:-_KEPT_MANIFESTS]


def finish_pruning(
    workspace: Workspace, index: str, state: ManifestState, chunking: ChunkingRecipe
) -> None:
    """Delete what an interrupted prune has left, before a version is begun that cuts like this.

    To the new version it would be its own, and what is missing of it, damage.
    """
    for version in state.versions:
        if version.pruned and version.chunking == chunking:
            _delete(workspace, _unneeded(workspace, f"indexes/{index}", state, version))


def _unneeded(
    workspace: Workspace, folder: str, state: ManifestState, pruned: IndexVersion
) -> Iterator[str]:
    """Files that no version which has its data needs, what says that others exist last."""
    alive = [version for version in state.versions if not version.pruned]
    folders = [f"applied/{pruned.collection}"]
    names = f"{pruned.chunking.id}/{pruned.embedding.id}"
    if not any((v.chunking, v.embedding) == (pruned.chunking, pruned.embedding) for v in alive):
        # A job whose vectors are gone would pass for done if they were asked for again.
        folders += [f"vectors/{names}", f"jobs/{names}"]
    if not any(version.chunking == pruned.chunking for version in alive):
        folders += [f"chunks/{pruned.chunking.id}", f"readings/{pruned.chunking.id}"]
    for below in folders:
        yield from (entry.path for entry in workspace.list(f"{folder}/{below}"))


def _delete(workspace: Workspace, paths: Iterable[str]) -> int:
    listed = list(paths)
    for start in range(0, len(listed), _AT_ONCE):
        workspace.delete(listed[start : start + _AT_ONCE])
    return len(listed)


def _is_plain(paths: Sequence[str]) -> bool:
    """Whether a run left nothing but what it said of itself."""
    return all(REPORT_FILES.fullmatch(path.rsplit("/", 1)[-1]) for path in paths)


def _marked(version: IndexVersion, *, at: str, by: str, run: str) -> IndexVersion:
    if version.pruned:
        return version
    if version.state not in {"retired", "failed"}:
        raise RefusedError(
            f"{version.name} is {version.state} by now; nothing of it was deleted",
            hint="run the same command again",
        )
    return replace(version, pruned=at).noted("pruned", at=at, by=by, run=run)
