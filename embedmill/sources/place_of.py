"""Which kind of place the settings of a source name."""

from __future__ import annotations

from embedmill.source_settings import FilesSourceSettings, TableSourceSettings
from embedmill.sources.folder import Folder
from embedmill.sources.listing import OpenFile, ScanFolder
from embedmill.sources.place import Place
from embedmill.workspace_settings import BucketAccess, names_bucket


def place_of(
    settings: FilesSourceSettings | TableSourceSettings,
    open_file: OpenFile,
    scan_folder: ScanFolder,
    own: str = "",
) -> Place:
    """A bucket for an URL of one, else a folder or file of the file system.

    Args:
        settings: of the source.
        open_file: for files.
        scan_folder: for folders.
        own: address that begins those of objects which hold no documents; "": there are none.
    """
    if not names_bucket(settings.path):
        return Folder.of(settings.path, open_file, scan_folder)
    from embedmill.sources.bucket import Bucket

    return Bucket.of(settings.path, settings.bucket or BucketAccess(), own)
