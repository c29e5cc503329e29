"""What a run leaves must outlast it: nothing of it may lie in the folder of a Ray job."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from embedmill.errors import RefusedError
from embedmill.settings import QdrantEmbeddedSettings, Settings
from embedmill.workspace import folder_of

# Ray unpacks what a job brings with it below these two, in its session's folder on each node, and
# deletes it when no job uses it any more and others need the room.
_UNPACKED = ("runtime_resources", "working_dir_files")


def require_lasting(settings: Settings) -> None:
    """Refuse a workspace or a store that would be gone after the Ray job that filled it.

    A job's own folder is what relative paths mean in it, and the next job may have another one.

    Raises:
        RefusedError: one of them lies there (``not-lasting``).
    """
    workspace, store = folder_of(settings.workspace.url), settings.store
    require_lasting_folder(workspace, "the workspace", "workspace", "a bucket")
    if isinstance(store, QdrantEmbeddedSettings):
        require_lasting_folder(Path(store.path), "the store", "store.path", "use a store's server")


def require_lasting_folder(folder: Path | None, what: str, key: str, instead: str) -> None:
    """Refuse a folder in that of a Ray job.

    Args:
        folder: None for a bucket.
        what: it is, for the message.
        key: of the settings, or the option, that names another.
        instead: what else there is than a folder.

    Raises:
        RefusedError: it lies there (``not-lasting``).
    """
    if folder is None or _UNPACKED not in pairwise(folder.expanduser().resolve().parts):
        return
    raise RefusedError(
        f"{what} {folder} lies in the folder that this Ray job was unpacked into, which is deleted "
        "after it: all work would be lost",
        code="not-lasting",
        hint=f"let {key} name a folder that every machine of the cluster sees, or {instead}",
    )
