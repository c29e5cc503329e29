"""What every machine of a run has to see, and what one of them does not."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from embedmill.errors import RefusedError
from embedmill.executor import Executor
from embedmill.plain_numbers import number_of
from embedmill.run_context import RunContext
from embedmill.run_report import run_folder
from embedmill.settings import DiscardStoreSettings, QdrantEmbeddedSettings
from embedmill.source import Split
from embedmill.workspace import folder_of
from embedmill.workspace_settings import names_bucket

# Machines that a message names.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Sight:
    """A file on a disk of ours.

    Attributes:
        what: it belongs to, for messages.
        path: as a worker would open it: relative paths and ``~`` mean something else elsewhere.
        key: of the settings.
    """

    what: str
    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Blindness:
    """What one machine does not see.

    Attributes:
        host: its name.
        unseen: what it looked for in vain.
    """

    host: str
    unseen: tuple[Sight, ...]


def require_visible(executor: Executor, context: RunContext, splits: Sequence[Split]) -> None:
    """Refuse a cluster of which a machine does not see what it would work on.

    Args:
        executor: of the run; has no workers yet.
        context: of the run.
        splits: of the source; none when it is not read.

    Raises:
        RefusedError: there is one (``not-visible``).
    """
    if executor.name == "inline":
        return
    with _sights(context, splits) as sights:
        found = executor.elsewhere(blindness_here, sights)
    blind: dict[Sight, list[str]] = {}
    for machine, blindness in found.items():
        for sight in blindness.unseen:
            blind.setdefault(sight, []).append(f"{blindness.host} (node {machine[:8]})")
    if not blind:
        return
    raise RefusedError(
        "; ".join(f"{sight.what} is not visible from {_named(ms)}" for sight, ms in blind.items()),
        code="not-visible",
        hint="put it where every machine of the cluster sees it under the same path, or into a "
        f"bucket, and set {' and '.join(sight.key for sight in blind)}; --local works on this "
        "machine alone",
    )


@contextmanager
def _sights(context: RunContext, splits: Sequence[Split]) -> Iterator[list[Sight]]:
    """One file each of the workspace, the source and the store, as far as they lie on disks.

    Args:
        context: of a run that has begun.
        splits: of the source; none when it is not read.
    """
    settings = context.settings
    sights: list[Sight] = []
    folder = folder_of(settings.workspace.url)
    if folder is not None:
        started = folder / run_folder(settings.index, context.run) / "started.json"
        sights.append(Sight(f"the workspace {folder}", str(started), "workspace"))
    first = splits[0].paths[0] if splits else ""
    if first and not names_bucket(first):
        sights.append(Sight(f"the source {settings.source.path}", first, "source.path"))
    store = settings.store
    if not isinstance(store, QdrantEmbeddedSettings | DiscardStoreSettings):
        yield sights
        return
    mark = Path(store.path) / f".seen-{context.run}"
    # What cannot be written here says so when the store is opened.
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        sights.append(Sight(f"the store {store.path}", str(mark), "store.path"))
    try:
        yield sights
    finally:
        with suppress(OSError):
            mark.unlink()


def blindness_here(sights: Iterable[Sight]) -> Blindness:
    """What the machine that runs this does not see."""
    # What may not be looked at is not seen either; ``Path.exists`` would raise.
    unseen = [sight for sight in sights if not os.access(Path(sight.path).expanduser(), os.F_OK)]
    return Blindness(platform.node(), tuple(unseen))


def _named(machines: Sequence[str]) -> str:
    more = len(machines) - _SHOWN
    shown = ", ".join(machines[:_SHOWN])
    return f"{shown} and {number_of(more, 'more machine')}" if more > 0 else shown
