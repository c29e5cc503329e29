"""Rows of CSV and TSV files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from typing import Self

from embedmill.errors import PermanentError, SourceError
from embedmill.plain_numbers import number_of
from embedmill.sources.blocks import Row
from embedmill.sources.lines import Overlong, lines_of
from embedmill.sources.table_rows import RowForm, column_positions, exact_id

# A record may be longer than the document in it: a quote is written as two. Up to this many times
# the limit of a document a record is still parsed. The csv module takes four bytes a character.
_LONGEST = 2

# What tables are separated by, and how that is written in settings.
_DELIMITERS = {",": '","', ";": '";"', "\t": r'"\t"', "|": '"|"'}


def delimited_rows(
    chunks: Iterable[bytes], form: RowForm, label: str, delimiter: str
) -> Iterator[Row]:
    """Yield one row per record below the header; the uri has the physical line where it starts.

    Every value is exact text. Quoting is that of RFC 4180; a record that breaks it (``csv``) or has
    another number of fields than the header (``columns``) is a row with an error. Blank lines are
    no records, and fields beyond the header are let pass when they are empty.

    Raises:
        SourceError: the header lacks a column that is used, or has it twice; where another
            delimiter would bring it forth, the message names that.
    """
    records = _Records(chunks, form, delimiter)
    header = _header(records, form, label)
    if header is None:
        return
    positions = column_positions(header, form.columns, label)
    id_position = positions[form.id_column]
    text_positions = [positions[name] for name in form.text_columns]
    for line, record, broken in records:
        uri = f"{label}:{line}"
        problem = broken or _another_width(record, header)
        if problem:
            yield form.error(_early_id(record, id_position), uri, problem)
            continue
        texts = [record[position] for position in text_positions]
        metadata = {name: record[positions[name]] for name in form.metadata_columns}
        yield form.row(uri, record[id_position], texts, metadata)


def _header(records: _Records, form: RowForm, label: str) -> list[str] | None:
    """The names of the columns; None for a file without any record."""
    for _, record, problem in records:
        if problem or not _has_all(record, form):
            _refuse_another_delimiter(records.head, form, label)
        if problem:
            raise SourceError(
                f"{label}: the header cannot be read: {problem}",
                code="header",
                hint="the first line names the columns; mend it, or set `source.encoding`",
            )
        return record
    return None


def _has_all(names: list[str], form: RowForm) -> bool:
    return set(form.columns) <= set(names)


def _refuse_another_delimiter(head: str, form: RowForm, label: str) -> None:
    """Refuse a header that has all columns if something else separates them."""
    for likely, written in _DELIMITERS.items():
        try:
            names = next(csv.reader([head], delimiter=likely, strict=True), [])
        except csv.Error:
            continue
        if _has_all(names, form):
            raise SourceError(
                f"{label}: the columns are separated by {written}: {', '.join(map(repr, names))}",
                code="delimiter",
                hint=f"set `source.delimiter: {written}`; that is for .csv files, and tabs "
                "separate what is called .tsv: give it the ending that fits",
            )


def _early_id(record: list[str], position: int) -> str:
    """The id of a broken record if it is the first field, which nothing can have shifted."""
    if position or len(record) < 2:
        return ""
    try:
        return exact_id(record[0], ())
    except PermanentError:
        return ""


def _another_width(record: list[str], header: list[str]) -> PermanentError | None:
    width = len(header)
    if len(record) == width or (len(record) > width and not any(record[width:])):
        return None
    return PermanentError(
        f"{number_of(len(record), 'field')}, the header has {width}; is a quote or a separator "
        "missing?",
        code="columns",
    )


class _Records:
    """Iterates over ``(first physical line, record, problem)``; blank lines are left out.

    The csv module wants whole lines and builds a record from as many as its quotes span. It is fed
    no more than a limit per record: the lines beyond are replaced by what decides where
    the record ends, the quote that an odd number of quotes amounts to.

    Attributes:
        head: the first line that is not blank, as far as it was read.
    """

    def __init__(self, chunks: Iterable[bytes], form: RowForm, delimiter: str) -> None:
        # The limit of the csv module belongs to the process; the size is bounded here instead.
        csv.field_size_limit(sys.maxsize)
        self.head = ""
        self._form = form
        self._limit = _LONGEST * form.limit
        self._lines = lines_of(chunks, self._limit)
        self._taken = 0
        self._size = 0
        self._reader = csv.reader(self._fed_lines(), delimiter=delimiter, strict=True)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, list[str], PermanentError | None]:
        while True:
            first, self._size = self._taken + 1, 0
            try:
                record = next(self._reader)
            except csv.Error as error:
                message = f"not CSV: {error} (lines {first} to {self._taken})"
                return first, [], PermanentError(message, code="csv")
            if self._size > self._limit:
                return first, record, self._form.too_large(self._size)
            if record:
                return first, record, None

    def _fed_lines(self) -> Iterator[str]:
        for line in self._lines:
            self._taken += 1
            self._size += (line.size if isinstance(line, Overlong) else len(line)) + 1
            if isinstance(line, bytes) and self._size <= self._limit:
                text = line.decode("utf-8", "surrogateescape")
                self.head = self.head or text.strip()
                yield text + "\n"
            else:
                quotes = line.quotes if isinstance(line, Overlong) else line.count(b'"')
                yield '"' * (quotes % 2)
