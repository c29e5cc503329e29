"""What an index fills itself: where its source finds it, it holds no documents.

Whatever else embedmill writes for a person is kept from where the source would find it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from embedmill.errors import RefusedError
from embedmill.settings import DiscardStoreSettings, QdrantEmbeddedSettings, Settings
from embedmill.source_settings import TableSourceSettings
from embedmill.sources.listing import ScanFolder, scan_folder
from embedmill.sources.path_patterns import PathPatterns
from embedmill.sources.place import glob_at
from embedmill.sources.tables import format_of
from embedmill.workspace import STAGING, folder_of
from embedmill.workspace_settings import BucketAccess, names_bucket


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


def require_not_read(settings: Settings, target: str) -> None:
    """Refuse to write a file that the next ingest would read as a document.

    Args:
        settings: of the index.
        target: path or address of the file.

    Raises:
        RefusedError: it lies where the source is, and the source takes files of its name.
    """
    if _is_read(settings, target):
        excluding = ", or one that source.exclude leaves out"
        raise RefusedError(
            f"{target} would be read as a document of index {settings.index!r} by the next ingest: "
            f"its source is {settings.source.path}",
            code="own-source",
            hint="name a place outside of it"
            + ("" if isinstance(settings.source, TableSourceSettings) else excluding),
        )


def _is_read(settings: Settings, target: str) -> bool:
    source = settings.source
    if names_bucket(source.path) != names_bucket(target):
        return False
    root, pattern, there = source.path.rstrip("/"), "**", target
    if not names_bucket(target):
        path = folder_of(target) or Path(target)
        path = path.expanduser().resolve()
        if any(path.is_relative_to(folder) for folder in own_folders(settings)):
            return False
        # Of the root of all folders nothing is left: what lies below it begins with a slash.
        root = Path(source.path).expanduser().resolve().as_posix().rstrip("/")
        there = path.as_posix()
    parts = root.split("/")
    at = glob_at(parts)
    if at is not None and not os.path.exists(root):  # noqa: PTH110 - of a text
        root, pattern = "/".join(parts[:at]), "/".join(parts[at:])
    if there != root and not there.startswith(f"{root}/"):
        return False
    below = there[len(root) + 1 :]
    if isinstance(source, TableSourceSettings):
        return not below or bool(format_of(below) and PathPatterns.of((pattern,)).takes(below))
    return not below or PathPatterns.of(source.include, source.exclude).takes(below)
