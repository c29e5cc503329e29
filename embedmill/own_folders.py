"""What an index fills itself: where its source finds it, it holds no documents."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from embedmill.settings import DiscardStoreSettings, QdrantEmbeddedSettings, Settings
from embedmill.sources.listing import ScanFolder, scan_folder
from embedmill.workspace import STAGING, folder_of
from embedmill.workspace_settings import BucketAccess


def own_folders(settings: Settings) -> list[Path]:
    """Folders of workspace and store, as far as they are on a disk."""
    found = []
    workspace = folder_of(settings.workspace.url)
    if workspace is not None:
        # The workspace may be the very folder that documents are in.
        found += [workspace / "indexes", workspace / STAGING]
    if isinstance(settings.store, QdrantEmbeddedSettings | DiscardStoreSettings):
        found.append(Path(settings.store.path))
    return [path.expanduser().resolve() for path in found]


def own_objects(settings: Settings) -> str:
    """The address that begins those of the workspace's objects; "" where it is on a disk."""
    workspace = settings.workspace
    reached = settings.source.bucket or BucketAccess()
    if folder_of(workspace.url) is not None or reached.endpoint != workspace.endpoint:
        return ""
    return f"{workspace.url.rstrip('/')}/indexes/"


def scan_without(folders: Iterable[Path]) -> ScanFolder:
    """A look at the entries of a folder that leaves these folders out."""
    real = {str(folder) for folder in folders}
    names = {os.path.basename(path) for path in real}  # noqa: PTH119 - of texts

    def scan(path: str) -> list[os.DirEntry[str]]:
        return [
            entry
            for entry in scan_folder(path)
            if entry.name not in names or os.path.realpath(entry.path) not in real
        ]

    return scan
