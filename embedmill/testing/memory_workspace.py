"""A workspace in memory, as strict as the real ones and much faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from embedmill.errors import AlreadyExistsError
from embedmill.workspace import Entry


class MemoryWorkspace:
    """Files in a dictionary.

    Attributes:
        url: for messages.
        files: path to content.
        before_create: called with the path before every create; may raise to play a full disk, a
            lost connection or a death.
    """

    def __init__(self) -> None:
        self.url = "memory:"
        self.files: dict[str, bytes] = {}
        self.before_create: Callable[[str], None] = lambda _: None

    def create(self, path: str, data: bytes) -> None:
        """See ``Workspace.create``."""
        self.before_create(path)
        if path in self.files:
            raise AlreadyExistsError(f"{path} exists already")
        self.files[path] = data

    def replace(self, path: str, data: bytes) -> None:
        """See ``Workspace.replace``."""
        self.files[path] = data

    def read(self, path: str) -> bytes | None:
        """See ``Workspace.read``."""
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        """See ``Workspace.exists``."""
        return path in self.files

    def list(self, prefix: str) -> Iterator[Entry]:
        """See ``Workspace.list``."""
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        # A copy: the heartbeat of a lease is put from another thread.
        files = list(self.files.items())
        yield from [Entry(path, len(data)) for path, data in files if path.startswith(folder)]

    def delete(self, paths: Sequence[str]) -> None:
        """See ``Workspace.delete``."""
        for path in paths:
            self.files.pop(path, None)
