"""The contract of a place: where the files of a source lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, Self, TypeVar

from embedmill.errors import SourceError
from embedmill.sources.listing import LinkPolicy, ListedFile, Listing
from embedmill.sources.path_patterns import PathPatterns

T = TypeVar("T")
# Code of the error for a file whose name the place's client does not take.
UNADDRESSABLE = "key"


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is open for reading.

    Attributes:
        file: gives its bytes.
        tag: of just these bytes; a listing has the same while they stay (``ListedFile``).
    """

    file: BinaryIO
    tag: bytes | None = None


class Place(Protocol):
    """A folder, or a prefix of a bucket. Holds nothing open and pickles."""

    def single(self) -> ListedFile | None:
        """The one file that the place is; None when it is a folder.

        Raises:
            SourceError: nothing is there, or it cannot be looked at.
        """
        ...

    def listing(self, patterns: PathPatterns, *, links: LinkPolicy = "skip") -> Listing:
        """All files below it that the patterns take, each once, sorted by relative path.

        Raises:
            SourceError: a part of it cannot be listed.
        """
        ...

    def divided(self) -> tuple[Self, str]:
        """The folder that a glob begins with, and the rest of it; the place and ``**`` if none."""
        ...

    def open(self, path: str) -> Opened:
        """Open a file of a listing, by its path.

        Raises:
            OSError: it is gone, or this file cannot be read.
            PermanentError: the place's client does not take its name (:data:`UNADDRESSABLE`).
            TransientError: the place did not answer.
        """
        ...

    def each(self, work: Callable[[str], T], paths: Iterable[str]) -> Iterator[T]:
        """Do something with each path; results in the order of the paths."""
        ...

    def gone(self, path: str) -> SourceError:
        """The error for a file that was listed but is not there to be read."""
        ...


def glob_at(parts: Sequence[str]) -> int | None:
    """Which part of a path is the first with a wildcard."""
    wild = (at for at, part in enumerate(parts) if any(sign in part for sign in "*?["))
    return next(wild, None)
