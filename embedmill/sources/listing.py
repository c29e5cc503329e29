"""Listing folders: which files there are, each once, in a stable order, cut into splits."""

from __future__ import annotations

import logging
import os
import platform
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias
from urllib.parse import quote_from_bytes

from embedmill.errors import SourceError
from embedmill.source import NO_TAG, Split
from embedmill.sources.path_patterns import PathPatterns

logger = logging.getLogger(__name__)

# A split is what one worker reads in one go: large enough that its start costs nothing beside it,
# small enough that a few thousand files keep every worker busy.
SPLIT_FILES = 200
SPLIT_BYTES = 32 * 2**20

# Of documents that nothing here parses; people expect to find them in an index all the same.
_UNREAD_ENDINGS = "doc docx epub odp ods odt pdf ppt pptx rtf xls xlsx"
_UNREAD = frozenset(_UNREAD_ENDINGS.split())

# Between the root and the relative part of a path, as rsync does it: the path opens as it stands,
# and no normalised path contains it otherwise.
MARK = "/./"

# skip: no link is followed. inside: links to files and folders within the root. files: links to
# files wherever they are, none to folders.
LinkPolicy: TypeAlias = Literal["skip", "inside", "files"]
OpenFile: TypeAlias = Callable[[str], BinaryIO]
TagOf: TypeAlias = "Callable[[ListedFile], bytes | None]"
ScanFolder: TypeAlias = Callable[[str], Iterable["os.DirEntry[str]"]]


def open_binary(path: str) -> BinaryIO:
    """Open a file for reading; the default of every source."""
    return Path(path).open("rb")


def scan_folder(path: str) -> list[os.DirEntry[str]]:
    """Entries of one folder; the default of every source."""
    with os.scandir(path) as entries:
        return list(entries)


def relative_part(path: str) -> str:
    """What stands below the root in the path of a split."""
    return path.partition(MARK)[2]


def text_of_path(relative: str) -> str:
    """A relative path as text that Arrow, JSON and the stores can hold.

    A name in UTF-8 stays exactly as it is. Any other becomes ``/`` and the percent-encoded bytes
    of the path (``/caf%E9.md``): ``urllib.parse.unquote_to_bytes(text[1:])`` gives the name back,
    and it meets no other since a relative path never starts with a slash.
    """
    try:
        relative.encode()
    except UnicodeEncodeError:
        return "/" + quote_from_bytes(os.fsencode(relative))
    return relative


def gone(path: str) -> SourceError:
    """The error for a file that was listed but is not there to be read."""
    return SourceError(
        f"{text_of_path(path.replace(MARK, '/', 1))!r} was listed but is gone, or is not visible "
        f"from this machine ({platform.node()})",
        code="not-visible",
        hint="put the source where every worker sees it under the same path, then run again",
    )


def doc_id_of(path: str) -> str:
    """Id of the document that a file is as a whole.

    Args:
        path: of a split.
    """
    return text_of_path(relative_part(path))


def splits_of(files: Iterable[ListedFile], tag_of: TagOf | None = None) -> list[Split]:
    """Cut a listing into splits of at most ``SPLIT_FILES`` and about ``SPLIT_BYTES``.

    Args:
        files: listed.
        tag_of: the tag of the document that a file is, if it is known; without it splits have none.
    """
    groups: list[list[ListedFile]] = []
    count, size = SPLIT_FILES, 0
    for file in files:
        if count >= SPLIT_FILES or size + file.size > SPLIT_BYTES:
            groups.append([])
            count, size = 0, 0
        groups[-1].append(file)
        count, size = count + 1, size + file.size
    return [_split(number, group, tag_of) for number, group in enumerate(groups)]


def _split(number: int, files: Sequence[ListedFile], tag_of: TagOf | None) -> Split:
    paths = tuple(file.path for file in files)
    if tag_of is None or not any(file.tag for file in files):
        return Split(number, paths)
    return Split(number, paths, b"".join(tag_of(file) or NO_TAG for file in files))


def absolute_path(path: str) -> str:
    """The path made absolute, ``~`` expanded and links kept."""
    return str(Path(path).expanduser().absolute())


def single_file(path: str, *, named: str) -> ListedFile | None:
    """The file at an absolute path, its relative path being its name; None for a folder.

    Args:
        path: absolute.
        named: how the settings put it, for messages.

    Raises:
        SourceError: nothing is there, it cannot be looked at, or it is a pipe, socket or device.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise SourceError(
            f"the source {named!r} cannot be read: {error.strerror} ({path})",
            code="no-such-path" if isinstance(error, FileNotFoundError) else "",
            hint="set `source.path` to something that this machine sees",
        ) from error
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"the source {named!r} is neither a file nor a folder ({path})")
    root, name = os.path.split(path)
    return ListedFile(root, name, status.st_size)


def list_folder(
    root: str,
    patterns: PathPatterns,
    *,
    links: LinkPolicy = "skip",
    scan: ScanFolder = scan_folder,
) -> Listing:
    """List the regular files below ``root`` that the patterns take, sorted by relative path.

    Each real file stands once: under its own name if that is taken, else under the first link in
    sorted order. A real folder is entered through links once at most, so that no loop is endless.
    Pipes, sockets and devices are left out; so are links that lead nowhere, with a log line.

    Raises:
        SourceError: a folder cannot be listed.
    """
    walk = _Walk(root, os.path.realpath(root), patterns, links, scan)
    pending = [("", False)]
    while pending:
        folder, linked = pending.pop()
        pending += walk.visit(folder, linked=linked)
    unique: dict[tuple[int, int], ListedFile] = {}
    for found in sorted(walk.found, key=lambda found: (found.linked, found.file.relative)):
        unique.setdefault(found.identity, found.file)
    files = sorted(unique.values(), key=lambda file: file.relative)
    return Listing(tuple(files), walk.links_left_out, walk.unread)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a listing.

    Attributes:
        root: absolute folder.
        relative: path below it, with slashes.
        size: in bytes.
        tag: 16 bytes that change whenever the content may have; None: nobody knows.
    """

    root: str
    relative: str
    size: int
    tag: bytes | None = None

    @property
    def path(self) -> str:
        """Opens the file, and tells root and relative part apart (:func:`relative_part`)."""
        return f"{self.root}{MARK}{self.relative}"


@dataclass(frozen=True, slots=True)
class Listing:
    """What :func:`list_folder` found.

    Attributes:
        files: sorted by relative path.
        links_left_out: symbolic links that were not followed.
        unread: how many documents of each kind that nothing parses were not taken, by ending.
    """

    files: tuple[ListedFile, ...]
    links_left_out: int
    unread: Mapping[str, int]


def unread_ending(name: str) -> str | None:
    """The ending of a document that nothing here parses; None for any other file."""
    ending = name.rpartition(".")[2].lower()
    return f".{ending}" if ending in _UNREAD else None


@dataclass(frozen=True, slots=True)
class _Found:
    file: ListedFile
    identity: tuple[int, int]
    linked: bool


@dataclass(slots=True)
class _Walk:
    root: str
    real_root: str
    patterns: PathPatterns
    links: LinkPolicy
    scan: ScanFolder
    found: list[_Found] = field(default_factory=list)
    entered: set[tuple[int, int]] = field(default_factory=set)
    links_left_out: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    def visit(self, folder: str, *, linked: bool) -> list[tuple[str, bool]]:
        """Collect the files of one folder; returns the folders to visit next."""
        path = f"{self.root}/{folder}" if folder else self.root
        try:
            entries = sorted(self.scan(path), key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(
                f"the folder {text_of_path(path)!r} cannot be listed: {error.strerror}; the "
                "documents in it would look deleted",
                code="unreadable-folder",
                hint="make it readable, or leave it out by the source's patterns",
            ) from error
        folders = []
        for entry in entries:
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if self._look_at(entry, relative, linked=linked):
                folders.append((relative, linked or entry.is_symlink()))
        return folders

    def _look_at(self, entry: os.DirEntry[str], relative: str, *, linked: bool) -> bool:
        """Note a file that is taken; returns whether the entry is a folder to enter."""
        takes = self.patterns.takes(relative)
        # Most entries are files of other kinds; what they are costs no further call.
        is_file = entry.is_file(follow_symlinks=False)
        if is_file and not takes:
            self._leave_out(relative)
        enters = not is_file and self.patterns.enters(relative)
        status = self._status(entry) if takes or enters else None
        if status is None:
            return False
        identity = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            return enters and (not entry.is_symlink() or self._enters_link(entry, identity))
        if not takes:
            return False
        if stat.S_ISREG(status.st_mode):
            file = ListedFile(self.root, relative, status.st_size)
            self.found.append(_Found(file, identity, linked or entry.is_symlink()))
        else:
            logger.info("%s is neither a file nor a folder; left out", entry.path)
        return False

    def _leave_out(self, relative: str) -> None:
        ending = unread_ending(relative)
        if ending and not self.patterns.excludes(relative):
            self.unread[ending] += 1

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result | None:
        """What the entry is behind links, or None when it is to be left out."""
        linked = entry.is_symlink()
        if linked and self.links == "skip":
            self.links_left_out += 1
            logger.info("the link %s is not followed", entry.path)
            return None
        try:
            status = entry.stat()
        except OSError as error:
            # A file may vanish while its folder is listed; then it never was there.
            if linked:
                logger.warning("the link %s leads nowhere: %s", entry.path, error.strerror)
            return None
        if linked and self.links == "inside" and not self._is_inside(entry.path):
            self.links_left_out += 1
            logger.warning("the link %s leads out of the folder; left out", entry.path)
            return None
        return status

    def _is_inside(self, path: str) -> bool:
        return os.path.commonpath([self.real_root, os.path.realpath(path)]) == self.real_root

    def _enters_link(self, entry: os.DirEntry[str], identity: tuple[int, int]) -> bool:
        real = os.path.realpath(entry.path)
        parent = os.path.realpath(Path(entry.path).parent)
        loops = os.path.commonpath([real, parent]) == real
        if self.links == "files" or loops or identity in self.entered:
            self.links_left_out += 1
            logger.info("the link %s to a folder is not followed", entry.path)
            return False
        self.entered.add(identity)
        return True
