"""The contract of a source: list, split, read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

# A block is cut when it reaches either; bounds what travels between two workers at once. Fewer and
# larger blocks are fewer calls: with 1,000 rows a first ingest of 100,000 small documents over Ray
# had 10 % less a second.
BLOCK_ROWS = 4_000
BLOCK_BYTES = 8 * 2**20
# A tag stands for the content of a file and for how it is read: while it stays, reading the file
# again gives the same document.
TAG_BYTES = 16
NO_TAG = bytes(TAG_BYTES)


@dataclass(frozen=True, slots=True)
class Split:
    """A part of the source that one worker reads from its start to its end.

    Attributes:
        number: position in the source's order, from 0; blocks are taken in this order.
        paths: files of this split, absolute or relative as the source understands them.
        tags: of the paths, one after the other, where listing them says which content they have:
            each path is one document then, and has ``TAG_BYTES`` here, ``NO_TAG`` where nothing is
            known of it. Empty where listing says nothing.
    """

    number: int
    paths: tuple[str, ...]
    tags: bytes = b""


class Source(Protocol):
    """Where documents come from. Instances are cheap, hold no open files and pickle."""

    def splits(self) -> list[Split]:
        """List the source in a stable order.

        Raises:
            SourceError: the path does not exist, nothing matches, or a directory in it cannot be
                listed (documents in it would look deleted otherwise).
        """
        ...

    def read(self, split: Split) -> Iterator[pa.Table]:
        """Yield blocks in ``embedmill.document.RAW_SCHEMA``, in the same order on every call.

        A row that cannot be read is a row with an error, never an exception and never missing.
        A block holds at most :data:`BLOCK_ROWS` rows and, but for a single larger document,
        :data:`BLOCK_BYTES`.

        Raises:
            SourceError: the split as a whole cannot be read (a file listed is gone, a required
                column is absent). The scan then counts as incomplete and nothing is deleted.
        """
        ...
