"""Rows of JSON lines, CSV, TSV and Parquet files; one row is one document.

Values of metadata columns become JSON as :mod:`embedmill.sources.json_values` says. CSV and TSV
have no types: every value stays the text that stands in the file.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, Literal, TypeAlias, assert_never

import pyarrow as pa

from embedmill.errors import PermanentError, SourceError
from embedmill.parsers.decoding import codec_name
from embedmill.plain_numbers import number_of
from embedmill.source import Split
from embedmill.source_settings import TableSourceSettings
from embedmill.sources.blocks import Row, blocks_of
from embedmill.sources.delimited import delimited_rows
from embedmill.sources.gzipped import is_gzip, plain_chunks
from embedmill.sources.json_lines import json_rows
from embedmill.sources.lines import utf8_chunks
from embedmill.sources.listing import (
    OpenFile,
    ScanFolder,
    open_binary,
    relative_part,
    scan_folder,
    splits_of,
    text_of_path,
)
from embedmill.sources.parquet import parquet_rows
from embedmill.sources.path_patterns import PathPatterns
from embedmill.sources.place import UNADDRESSABLE
from embedmill.sources.place_of import place_of
from embedmill.sources.table_rows import RowForm

logger = logging.getLogger(__name__)
_NOT_FINITE = "is NaN or infinite, which JSON does not have, and kept as null: in"
TableFormat: TypeAlias = Literal["json", "csv", "tsv", "parquet"]

_FORMATS: dict[str, TableFormat] = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
_ENDINGS = f"{', '.join(_FORMATS)} (each also with .gz)"


def format_of(name: str) -> TableFormat | None:
    """Format by the extension, that of the inner name for ``.gz``."""
    inner = name[:-3] if name.lower().endswith(".gz") else name
    return _FORMATS.get(PurePosixPath(inner).suffix.lower())


class TableSource:
    """Rows of one file, of all tables below a folder, or of the tables that a glob matches.

    The folder may be one of the file system or a prefix of a bucket.

    Links to files are followed, each real file is read once; links to folders are not. Wildcards
    do not match a leading dot.

    ``doc_id`` is the id column: text as it is, whole numbers in decimal (``1`` and ``"1"`` are the
    same id). A row that cannot be a document is a row with an error, its ``doc_id`` the id if that
    could be read, else empty: ``json``, ``csv``, ``columns``, ``encoding``, ``missing-id``,
    ``bad-id``, ``missing-text``, ``bad-text``, ``metadata``, ``too-large``.

    A file that breaks off counts as far as it goes: the rows before the break are delivered, a line
    that is cut is not, and one row with an error and no id stands for the rest, ``truncated`` for
    gzip data without its end, ``damaged`` for anything else that cannot be read on, ``encoding``
    for text that cannot be decoded any further, ``unreadable`` for what the system does not let us
    read. What a file is packed in is read from its first bytes, not from its name.
    """

    def __init__(
        self,
        settings: TableSourceSettings,
        *,
        open_file: OpenFile = open_binary,
        scan_folder: ScanFolder = scan_folder,
        own: str = "",
    ) -> None:
        self._settings = settings
        self._place = place_of(settings, open_file, scan_folder, own)
        self._form = RowForm.of(settings)
        self._encoding = settings.encoding and codec_name(settings.encoding)

    def splits(self) -> list[Split]:
        """List the files, sorted by path; a file is never divided.

        Raises:
            SourceError: the path is not there, no table matches, or a folder cannot be listed.
        """
        place, pattern = self._place.divided()
        single = place.single()
        if single:
            if not format_of(single.relative):
                raise self._no_tables(f"{self._settings.path!r} is no table by its ending")
            return splits_of([single])
        listing = place.listing(PathPatterns.of((pattern,)), links="files")
        tables = [file for file in listing.files if format_of(file.relative)]
        if not tables:
            found = f"{number_of(len(listing.files), 'other file')}" if listing.files else "no file"
            raise self._no_tables(f"{self._settings.path!r} holds no table; it matches {found}")
        return splits_of(tables)

    def read(self, split: Split) -> Iterator[pa.Table]:
        """Yield the rows of the split's files, in order.

        Raises:
            SourceError: a file is gone or not visible here, lacks a column that is used, or is
                UTF-16 without saying so.
        """
        return blocks_of(row for path in split.paths for row in self._rows(path))

    def _no_tables(self, message: str) -> SourceError:
        return SourceError(
            message, code="no-match", hint=f"`source.path` is a file, folder or glob of {_ENDINGS}"
        )

    def _rows(self, path: str) -> Iterator[Row]:
        relative = relative_part(path)
        label = text_of_path(relative)
        self._form.not_finite.clear()
        try:
            with self._place.open(path).file as file:
                yield from self._rows_of_file(file, format_of(relative) or "json", label)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise self._place.gone(path) from error
        except OSError as error:
            problem = PermanentError(
                f"{label} cannot be read: {error.strerror or error}",
                code="unreadable",
                hint="make it readable, or take it out of what `source.path` names",
            )
            yield self._form.error("", label, problem)
        except PermanentError as error:
            message = f"{label} breaks off: {error}; the rows before that are read"
            if error.code == UNADDRESSABLE:
                message = f"{label} cannot be read: {error}"
            yield self._form.error("", label, PermanentError(message, code=error.code))
        for column, count in sorted(self._form.not_finite.items()):
            logger.warning("%s: %s", label, f"{column!r} {_NOT_FINITE} {number_of(count, 'row')}")

    def _rows_of_file(self, file: BinaryIO, kind: TableFormat, label: str) -> Iterator[Row]:
        match kind:
            case "parquet":
                yield from _parquet_rows(file, self._form, label)
            case "json":
                yield from json_rows(self._text(file, label), self._form, label)
            case "csv":
                delimiter = self._settings.delimiter
                yield from delimited_rows(self._text(file, label), self._form, label, delimiter)
            case "tsv":
                yield from delimited_rows(self._text(file, label), self._form, label, "\t")
            case _:
                assert_never(kind)

    def _text(self, file: BinaryIO, label: str) -> Iterator[bytes]:
        return utf8_chunks(plain_chunks(file), encoding=self._encoding, label=label)


def _parquet_rows(file: BinaryIO, form: RowForm, label: str) -> Iterator[Row]:
    if not is_gzip(file):
        yield from parquet_rows(file, form, label)
        return
    # Parquet is read from its end: it has to be unpacked first, to disk and not into memory.
    with tempfile.TemporaryFile() as unpacked:
        for chunk in plain_chunks(file):
            unpacked.write(chunk)
        unpacked.seek(0)
        yield from parquet_rows(unpacked, form, label)
