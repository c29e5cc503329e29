"""Export: write a version as Parquet for others to read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from embedmill.assembly import Layers, workspace_of
from embedmill.errors import RefusedError, SettingsError
from embedmill.exporting import Exporter, a_file_of, state_id
from embedmill.lease import take_lease
from embedmill.live_records import LiveRecords
from embedmill.own_folders import require_not_read
from embedmill.run_context import RunContext
from embedmill.settings import Settings
from embedmill.work_left import confirmed_in_line
from embedmill.workspace import open_workspace
from embedmill.workspace_settings import WorkspaceSettings
from pipelines.copy import require_vectors, version_to_read


def export(
    settings: Settings,
    to: str,
    number: int | None = None,
    *,
    take_over: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Write the records of a version into a folder or bucket.

    Killed at any point, it can be called again, and keeps the files that are there. Another state
    of the index replaces what is there; its manifest is missing meanwhile.

    Args:
        settings: of the index.
        to: folder, or ``file://``, ``s3://``, ``gs://`` or ``az://`` address.
        number: of the version; the published one without it.
        take_over: take the lease from a holder that seems alive.
        sleep: waits for so many seconds.

    Returns:
        The manifest.

    Raises:
        RefusedError: the version is not complete, the folder has the export of another index, or
            the source would read what is written there.
        IndexLockedError: a run holds the index.
    """
    place, workspace = _place(settings, to), workspace_of(settings)
    version = version_to_read(settings, number)
    require_not_read(settings, f"{to.rstrip('/')}/{a_file_of(settings.index, version)}")
    with take_lease(workspace, settings.index, "export", take_over=take_over, sleep=sleep):
        layers = Layers(
            RunContext(
                settings=settings,
                run="",
                version=version.name,
                collection=version.collection,
                chunking=version.chunking,
                embedding=version.embedding,
            )
        )
        committed = layers.chunks.committed()
        require_vectors(layers, committed)
        applied = confirmed_in_line(layers.chunks, layers.applied, mend=False)
        if any(numbers[-1] > applied.get(s, -1) for s, numbers in committed.items()):
            raise RefusedError(
                "some segments of this version are not in the store yet",
                hint="run embedmill ingest SETTINGS to its end first",
            )
        live = LiveRecords(layers.chunks, layers.vectors, layers.applied)
        state = state_id(version, layers.chunks)
        return Exporter(open_workspace(place), live, settings.index, version, state).run()


def _place(settings: Settings, to: str) -> WorkspaceSettings:
    """Where to write: a bucket is reached as the workspace is."""
    if not to:
        raise SettingsError("--to is empty: it takes a folder or an address")
    keys = {"region", "endpoint", "access_key", "secret_key", "allow_http"}
    shared = settings.workspace.model_dump(include=keys) if to.startswith("s3://") else {}
    return WorkspaceSettings(url=to, **shared)
