"""Events about versions: what is said of a publication, a rollback, a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embedmill.announcing import Delivery, announce, keep_event
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.version_settings import HookEvent, HookSettings
from embedmill.workspace import Workspace


def tell_of_arrival(
    workspace: Workspace,
    index: str,
    hooks: Sequence[HookSettings],
    *,
    at: str,
    sleep: Callable[[float], None],
) -> Sequence[Delivery]:
    """Tell of the version that readers see now whoever was not told yet.

    The event follows from the manifest alone: a process that died right after a publication leaves
    it to the next one. Nobody is told any more once readers were sent elsewhere.

    Returns:
        What was tried.
    """
    manifest = Manifest(workspace, index)
    event = arrival_event(manifest.read(), index)
    if event is None:
        return ()
    keep_event(workspace, index, event["run"], event)

    def holds() -> bool:
        return arrival_event(manifest.read(), index) == event

    return announce(workspace, index, event["run"], hooks, at=at, sleep=sleep, holds=holds)


def arrival_event(state: ManifestState, index: str) -> dict[str, Any] | None:
    """The event of the publication by which readers see what they see, or None."""
    published = state.published
    if published is None:
        return None
    arrivals = [
        line
        for line in published.history
        if line["event"] in {"published", "restored"} and line.get("run")
    ]
    if not arrivals:
        return None
    line = arrivals[-1]
    before = next((v for v in state.versions if _left_in(v, line["run"])), None)
    kind: HookEvent = "published" if line["event"] == "published" else "restored"
    return _event(kind, index, published, before, line)


def _left_in(version: IndexVersion, run: str) -> bool:
    left = ("retired", "rolled-back")
    return any(line["event"] in left and line.get("run") == run for line in version.history)


def refusal_event(
    index: str,
    version: IndexVersion,
    published: IndexVersion | None,
    line: Mapping[str, str],
    reason: str,
) -> dict[str, Any]:
    """The event of a version that was not let through.

    Args:
        index: its name.
        version: that was to be published.
        published: that readers go on seeing.
        line: ``at``, ``by`` and ``run``.
        reason: for a person.
    """
    return {**_event("failed", index, version, published, line), "reason": reason}


def _event(
    kind: HookEvent,
    index: str,
    version: IndexVersion,
    before: IndexVersion | None,
    line: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "id": f"{index}/{line['run']}/{kind}/{version.name}",
        "event": kind,
        "index": index,
        "alias": index,
        "at": line["at"],
        "by": line["by"],
        "run": line["run"],
        "version": _described(version),
        "before": None if before is None else _described(before),
    }


def _described(version: IndexVersion) -> dict[str, Any]:
    embedding = version.embedding
    return {
        "number": version.number,
        "collection": version.collection,
        "embedding": embedding.id,
        "provider": embedding.provider,
        "model": embedding.model,
        "revision": embedding.revision,
        "dimension": embedding.dimension,
    }
