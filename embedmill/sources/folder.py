"""A folder, or one file, of the file system as the place of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from embedmill.errors import SourceError
from embedmill.sources.listing import (
    LinkPolicy,
    ListedFile,
    Listing,
    OpenFile,
    ScanFolder,
    absolute_path,
    gone,
    list_folder,
    open_binary,
    scan_folder,
    single_file,
)
from embedmill.sources.path_patterns import PathPatterns
from embedmill.sources.place import Opened, glob_at

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Folder:
    """See :class:`~embedmill.sources.place.Place`.

    Attributes:
        root: absolute, so that a worker with another working directory opens the same files.
        named: how the settings put it.
        open_file: opens a file.
        scan_folder: lists a folder.
    """

    root: str
    named: str
    open_file: OpenFile = open_binary
    scan_folder: ScanFolder = scan_folder

    @classmethod
    def of(cls, path: str, open_file: OpenFile, scan_folder: ScanFolder) -> Self:
        """The folder that the settings name."""
        return cls(absolute_path(path), path, open_file, scan_folder)

    def single(self) -> ListedFile | None:
        """See :meth:`~embedmill.sources.place.Place.single`."""
        return single_file(self.root, named=self.named)

    def listing(self, patterns: PathPatterns, *, links: LinkPolicy = "skip") -> Listing:
        """See :meth:`~embedmill.sources.place.Place.listing`."""
        return list_folder(self.root, patterns, links=links, scan=self.scan_folder)

    def divided(self) -> tuple[Self, str]:
        """See :meth:`~embedmill.sources.place.Place.divided`."""
        path = Path(self.root)
        at = None if path.exists() else glob_at(path.parts)
        if at is None:
            return self, "**"
        return replace(self, root=str(Path(*path.parts[:at]))), "/".join(path.parts[at:])

    def open(self, path: str) -> Opened:
        """See :meth:`~embedmill.sources.place.Place.open`; no tag, for times are no proof."""
        return Opened(self.open_file(path))

    def each(self, work: Callable[[str], T], paths: Iterable[str]) -> Iterator[T]:
        """See :meth:`~embedmill.sources.place.Place.each`."""
        return map(work, paths)

    def gone(self, path: str) -> SourceError:
        """See :meth:`~embedmill.sources.place.Place.gone`."""
        return gone(path)
