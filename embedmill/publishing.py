"""Publishing: which version readers are sent to.

The manifest is the truth and is changed first, by one file that only one process can create. The
store's alias mirrors it: whoever finds it behind, moves it on. A process that dies between the two
leaves a mirror that the next command, whatever it is, puts right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from embedmill.errors import EmbedmillError, RefusedError, StopRunError
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.vector_store import VectorStore

# How a version came to be what readers see: for its own merit, or because it was taken back.
Arrival = Literal["published", "restored"]
# A mirror that is overtaken by another publication is set again; this often is no accident.
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Switch:
    """One publication.

    Attributes:
        before: what readers saw, or None.
        after: what they see.
        changed: False when they saw it already.
        alias_moved: the store's alias pointed elsewhere, whatever the manifest said.
    """

    before: IndexVersion | None
    after: IndexVersion
    changed: bool
    alias_moved: bool = False


def require_publishable(version: IndexVersion) -> None:
    """Refuse a version that readers cannot be sent to.

    Raises:
        RefusedError: it is not complete, given up, or its data is gone.
    """
    if version.pruned is not None:
        raise RefusedError(
            f"the records of {version.name} were pruned, {version.pruned}",
            code="pruned",
            hint="build it again, with the settings it had: embedmill reembed SETTINGS",
        )
    if version.state in {"building", "failed"}:
        raise RefusedError(
            f"{version.name} is {version.state}: it is not complete",
            code="not-complete",
            hint="with its settings run embedmill ingest SETTINGS (the first version) or embedmill "
            "reembed SETTINGS (a later one) to its end first",
        )


def require_collection(store: VectorStore, version: IndexVersion) -> None:
    """Refuse to send readers to a collection that is not there.

    Raises:
        RefusedError: it is not.
    """
    if version.collection not in store.collections():
        raise RefusedError(
            f"the store has no collection {version.collection!r}, which {version.name} needs",
            code="no-collection",
            hint="somebody has deleted it; build it again, with the settings that it had: "
            "embedmill reembed SETTINGS",
        )


def switch(
    manifest: Manifest, number: int, *, arrival: Arrival, at: str, by: str, run: str
) -> Switch:
    """Make a version the published one, in one step; the alias is still to be mirrored.

    Args:
        manifest: of the index.
        number: of the version.
        arrival: why.
        at: UTC, ISO 8601.
        by: who does it.
        run: in which run.

    Raises:
        RefusedError: there is no such version, or it is not fit (see ``require_publishable``).
        ManifestConflictError: others commit all the time.
    """

    def published(state: ManifestState) -> IndexVersion | None:
        version = state.version(number)
        if version.state == "published":
            return None
        require_publishable(version)
        now_seen = replace(version, state="published", published=at, retired=None)
        return now_seen.noted(arrival, at=at, by=by, run=run)

    before, after = manifest.update(published)
    return Switch(before.published, after.version(number), before is not after)


def mirror(manifest: Manifest, store: VectorStore, index: str) -> bool:
    """Let the alias point where the manifest says.

    Another publication may come between reading and pointing: it ends only when both say the same.

    Returns:
        Whether it had to be moved.

    Raises:
        StopRunError: the store does not take it; the manifest, and readers that follow it, are
            ahead of the alias.
    """
    moved = False
    for _ in range(_TRIES):
        published = manifest.read().published
        if published is None:
            return moved
        try:
            if store.alias_target(index) == published.collection:
                return moved
            store.set_alias(index, published.collection)
        except EmbedmillError as error:
            raise StopRunError(
                f"{published.name} is published, but the store's alias {index!r} could not be "
                f"pointed at its collection {published.collection!r}: {error}",
                code="alias",
                hint="run the same command again: it moves the alias and does nothing else",
            ) from error
        moved = True
    raise StopRunError(
        f"the alias {index!r} is moved by others all the time",
        code="alias",
        hint="see who publishes this index: embedmill versions -c SETTINGS",
    )


def require_known_alias(state: ManifestState, target: str | None, alias: str) -> None:
    """Refuse to take readers away from where this manifest has never sent them.

    An alias may lag behind the manifest and never runs ahead of it, unless the newest is lost.

    Args:
        state: of the manifest.
        target: of the alias, or None.
        alias: its name.

    Raises:
        RefusedError: somebody else has sent them there, or part of the manifest is lost.
    """
    published = state.published
    if target is None or published is None:
        return
    if any(v.collection == target and v.published for v in state.versions):
        return
    raise RefusedError(
        f"readers of the store's alias {alias!r} see collection {target!r}, which this workspace "
        "has never published: it is older than the store, or another workspace has an index of "
        "this name in it",
        code="foreign-alias",
        hint="restore the newest state of the workspace, or give one of the two another `index` or "
        f"store; to take readers to {published.name} of this one all the same: embedmill publish "
        f"{published.number} -c SETTINGS",
    )


def point_alias(store: VectorStore, alias: str, collection: str) -> None:
    """Let an alias point at a collection, if it does not already."""
    if store.alias_target(alias) != collection:
        store.set_alias(alias, collection)


def rollback_target(state: ManifestState, number: int | None) -> IndexVersion:
    """The version that readers are taken back to.

    Going back twice goes nowhere further: whoever repeats the command in doubt finds readers where
    the first one took them.

    Args:
        state: of the manifest.
        number: that was asked for; without it the version that was published before, or the
            published one when a rollback has brought readers there.

    Raises:
        RefusedError: there is none, or it was never published.
    """
    published = state.published
    if number is not None:
        version = state.version(number)
        if version.published is None:
            raise RefusedError(
                f"{version.name} was never published; there is no way back to it",
                hint=f"to publish it: embedmill publish {version.number} -c SETTINGS",
            )
        return version
    if published is not None and _last_event(published) == "restored":
        return published
    kept = [version for version in _ways_back(state) if _last_event(version) != "rolled-back"]
    if not kept:
        raise _no_way_back()
    return max(kept, key=lambda version: (version.retired or "", version.number))


def version_before(state: ManifestState, version: IndexVersion) -> IndexVersion:
    """The version that readers saw before they came to this one.

    Raises:
        RefusedError: there is none, or its data is gone.
    """
    left = [v for v in _ways_back(state) if v.number != version.number]
    if not left:
        raise _no_way_back()
    return max(left, key=lambda one: (one.retired or "", one.number))


def _ways_back(state: ManifestState) -> list[IndexVersion]:
    """Versions that readers saw once and may see again."""
    return [
        version
        for version in state.versions
        if version.state == "retired" and version.published and version.pruned is None
    ]


def _no_way_back() -> RefusedError:
    return RefusedError(
        "there is no earlier version to go back to: none was published before, or they were pruned",
        code="no-way-back",
        hint="see what there is with: embedmill versions -c SETTINGS",
    )


def _last_event(version: IndexVersion) -> str:
    """How readers last came to it or left it."""
    moves = [line["event"] for line in version.history if line["event"] in _MOVES]
    return moves[-1] if moves else ""


_MOVES = {"published", "restored", "retired", "rolled-back"}
