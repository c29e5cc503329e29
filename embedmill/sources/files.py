"""A folder or bucket of documents: text, Markdown, reStructuredText, Python, HTML, notebooks."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import BinaryIO

import pyarrow as pa

from embedmill.document import canonical_metadata
from embedmill.errors import PermanentError, SourceError
from embedmill.plain_numbers import agreed, number_of
from embedmill.source import TAG_BYTES, Split
from embedmill.source_settings import FilesSourceSettings
from embedmill.sources.blocks import Row, blocks_of, error_row
from embedmill.sources.gzipped import plain_chunks
from embedmill.sources.listing import (
    LinkPolicy,
    ListedFile,
    Listing,
    OpenFile,
    ScanFolder,
    doc_id_of,
    open_binary,
    relative_part,
    scan_folder,
    splits_of,
)
from embedmill.sources.path_patterns import PathPatterns
from embedmill.sources.place_of import place_of

logger = logging.getLogger(__name__)
# Endings that a message names.
_SHOWN = 4
_FOLLOWING = "source.follow_links: true follows those that stay within the folder"
_UNREAD = (
    "nothing here parses them; convert them to text, or set source.include to say what is read"
)
# Raised when the same bytes under the same name come out of here as another row. What parsers make
# of them is no part of it: that is the recipe's.
_READING = 1
_MEDIA_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".rst": "text/x-rst",
    ".py": "text/x-python",
    ".html": "text/html",
    ".htm": "text/html",
    ".ipynb": "application/x-ipynb+json",
    ".vtt": "text/vtt",
    ".srt": "application/x-subrip",
}


def media_type_of(name: str) -> str:
    """Media type by the extension, that of the inner name for ``.gz``; else ``text/plain``."""
    inner = name[:-3] if name[-3:].lower() == ".gz" else name
    # As PurePosixPath has it, in a quarter of the time: every object of a listing is asked.
    last = inner.rpartition("/")[2]
    at = last.rfind(".")
    ending = last[at:].lower() if 0 < at < len(last) - 1 else ""
    return _MEDIA_TYPES.get(ending, "text/plain")


class FilesSource:
    """Every file of a folder, or object of a bucket, that the patterns take is one document.

    ``doc_id`` is the path relative to the folder, byte for byte: ``a b.md`` and ``a%20b.md`` are
    two documents. A name that is not UTF-8 is written as
    :func:`embedmill.sources.listing.text_of_path` says. When the settings name one file, its name
    is the ``doc_id`` and the patterns do not matter.

    Patterns follow the shell (:class:`~embedmill.sources.path_patterns.PathPatterns`). Links are
    not followed unless ``follow_links`` says so, and then only within the folder, each real file
    once. Pipes, sockets and devices are left out.

    A file that is there but cannot be read (``unreadable``), is too large (``too-large``), or is
    gzip cut short (``truncated``) or broken (``damaged``) is a row with an error under its
    ``doc_id``. Files that are gzip, by their first bytes, are read unpacked.
    """

    def __init__(
        self,
        settings: FilesSourceSettings,
        *,
        open_file: OpenFile = open_binary,
        scan_folder: ScanFolder = scan_folder,
        own: str = "",
    ) -> None:
        self._settings = settings
        self._place = place_of(settings, open_file, scan_folder, own)
        decisive = (settings.fallback_encoding, settings.max_document_bytes)
        self._reading = repr((_READING, *decisive)).encode()

    def splits(self) -> list[Split]:
        """List the folder, sorted by path.

        Raises:
            SourceError: the path is not there, nothing matches, or a folder cannot be listed.
        """
        single = self._place.single()
        return splits_of([single] if single else self._listed(), self._listed_tag)

    def read(self, split: Split) -> Iterator[pa.Table]:
        """Yield one row per file of the split.

        Raises:
            SourceError: a file is gone since it was listed, or this machine does not see it.
        """
        return blocks_of(self._place.each(self._row, split.paths))

    def _listed(self) -> tuple[ListedFile, ...]:
        settings = self._settings
        patterns = PathPatterns.of(settings.include, settings.exclude)
        links: LinkPolicy = "inside" if settings.follow_links else "skip"
        listing = self._place.listing(patterns, links=links)
        if not listing.files:
            raise self._nothing_matches(listing)
        if listing.links_left_out and not settings.follow_links:
            number = listing.links_left_out
            found = f"{number_of(number, 'link')} {agreed(number, 'is', 'are')} not followed"
            logger.warning("%s; %s", found, _FOLLOWING)
        if listing.unread and "include" not in settings.model_fields_set:
            found = ", ".join(f"{count:,} {ending}" for ending, count in listing.unread.items())
            logger.warning("%s left out: %s", found, _UNREAD)
        return listing.files

    def _nothing_matches(self, listing: Listing) -> SourceError:
        settings = self._settings
        message = f"no file in {settings.path!r} matches {', '.join(settings.include)}"
        if settings.exclude:
            message += f" and not {', '.join(settings.exclude)}"
        others = self._other_files()
        if others:
            message += f"; of other files there are {others}"
        if listing.links_left_out:
            left_out = number_of(listing.links_left_out, "link")
            message += f"; {left_out} {agreed(listing.links_left_out, 'was', 'were')} not followed"
        return SourceError(
            message,
            code="no-match",
            hint="check `source.path` and `source.include`; patterns are relative to the folder "
            "and wildcards do not match a leading dot"
            + (f"; {_FOLLOWING}" if listing.links_left_out and not settings.follow_links else ""),
        )

    def _other_files(self) -> str:
        """How many files there are of the most frequent endings, whatever the patterns say."""
        listing = self._place.listing(PathPatterns.of(("**",)))
        names = (PurePosixPath(file.relative) for file in listing.files)
        endings = Counter(name.suffix or name.name for name in names)
        return ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(_SHOWN))

    def _row(self, path: str) -> Row:
        doc_id, media_type = doc_id_of(path), media_type_of(relative_part(path))
        metadata = canonical_metadata({"path": doc_id}).encode()
        try:
            opened = self._place.open(path)
            content = self._content(opened.file)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise self._place.gone(path) from error
        except OSError as error:
            code, message = "unreadable", f"cannot be read: {error.strerror or error}"
        except PermanentError as error:
            code, message = error.code, str(error)
        else:
            tag = opened.tag and self._tag(opened.tag, media_type)
            return (doc_id, content, media_type, metadata, doc_id, None, None, tag)
        return error_row(doc_id, media_type, doc_id, code=code, message=message, metadata=metadata)

    def _listed_tag(self, file: ListedFile) -> bytes | None:
        return file.tag and self._tag(file.tag, media_type_of(file.relative))

    def _tag(self, of_file: bytes, media_type: str) -> bytes:
        """The tag of a document: that of its file, and how this source reads it."""
        facts = (of_file, self._reading, media_type.encode())
        return blake2b(b"".join(facts), digest_size=TAG_BYTES).digest()

    def _content(self, opened: BinaryIO) -> bytes:
        limit = self._settings.max_document_bytes
        with opened as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size > limit:
                raise _too_large(f"{size} bytes", limit)
            pieces, unpacked = [], 0
            for piece in plain_chunks(file):
                unpacked += len(piece)
                if unpacked > limit:
                    raise _too_large(f"more than {limit} bytes when unpacked", limit)
                pieces.append(piece)
        return b"".join(pieces)


def _too_large(size: str, limit: int) -> PermanentError:
    return PermanentError(
        f"{size}, the limit is {limit}: raise source.max_document_bytes, or split the file",
        code="too-large",
    )
