"""What every table format does with a row: exact id, joined text, chosen metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import orjson

from embedmill.errors import PermanentError, SourceError
from embedmill.source_settings import TableSourceSettings
from embedmill.sources.blocks import Row, error_row
from embedmill.sources.json_values import INT64, is_lossy, json_text, json_value

# Stands for the id of a row that has no such column.
MISSING: Final = object()

# Values that go into JSON as they are; NaN and infinities come out as null.
_PLAIN = frozenset({str, bool, type(None), float})
# Values that have nothing to lose.
_FINITE = frozenset({str, int, bool, type(None)})


def column_positions(found: Sequence[str], needed: Iterable[str], label: str) -> dict[str, int]:
    """Where each needed column stands.

    Raises:
        SourceError: one is absent, or its name stands more than once.
    """
    positions = {}
    listing = ", ".join(map(repr, found))
    for name in needed:
        if found.count(name) != 1:
            raise _column_error(name, found.count(name), label, listing)
        positions[name] = found.index(name)
    return positions


def _column_error(name: str, count: int, label: str, listing: str) -> SourceError:
    if count:
        return SourceError(
            f"{label}: {count} columns are called {name!r}; the columns are {listing}",
            code="ambiguous-column",
            hint="give each column that is used a name of its own",
        )
    hint = "set `source.id_column`, `source.text_columns` and `source.metadata_columns`"
    if ";" in listing or "\\t" in listing:
        hint += "; `source.delimiter` says what separates the columns of .csv files"
    return SourceError(
        f"{label}: there is no column {name!r}; the columns are {listing}",
        code="missing-column",
        hint=hint,
    )


def exact_id(value: object, columns: Iterable[str]) -> str:
    """The id of a row as text: text as it is, whole numbers in decimal.

    Args:
        value: what stands in the id column, or :data:`MISSING`.
        columns: names that the row has, for the message.

    Raises:
        PermanentError: there is none or it is empty (``missing-id``); it is null, a truth value, a
            fractional number, a list or an object, or not valid text (``bad-id``).
    """
    if isinstance(value, str) and value:
        if not value.isascii():
            _refuse_surrogates(value, "id", code="bad-id")
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is MISSING:
        names = ", ".join(map(repr, columns))
        raise PermanentError(
            f"there is no id; the row has {names}",
            code="missing-id",
            hint="`source.id_column` says which column it is",
        )
    if value == "":
        raise PermanentError("the id is empty", code="missing-id")
    raise PermanentError(f"the id is {_shown(value)}; ids are text or whole numbers", code="bad-id")


def _shown(value: object) -> str:
    return json_text(value)[:80]


def _refuse_surrogates(text: str, what: str, *, code: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        number = ord(text[error.start])
        # Undecodable bytes travel as U+DC80 to U+DCFF; anything else stands in the row as it is.
        is_byte = 0xDC80 <= number <= 0xDCFF
        problem = f"byte 0x{number - 0xDC00:02x}" if is_byte else f"U+{number:04X}"
        raise PermanentError(
            f"the {what} is not valid UTF-8: {problem} at character {error.start}",
            code=code,
            hint="mend the row, or (text files) set `source.encoding`"
            if is_byte
            else "mend the row",
        ) from error


def _text(value: object) -> str:
    if isinstance(value, PermanentError):
        raise value
    if value is None:
        return ""
    reduced = json_value(value)
    if reduced is None:
        # NaN: no number, and no word either.
        return ""
    if isinstance(reduced, (list, dict)):
        raise PermanentError(
            f"a text column holds {_shown(value)}; text is text or a single value", code="bad-text"
        )
    return json_text(reduced)


def _metadata(values: Mapping[str, object]) -> bytes:
    if not values:
        return b"{}"
    reduced = {
        name: value if type(value) in _PLAIN else _metadata_value(value)
        for name, value in values.items()
    }
    try:
        return orjson.dumps(reduced, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        # What is left are lone surrogates and nesting beyond what JSON parsers take.
        raise PermanentError(f"the metadata cannot be kept: {error}", code="metadata") from error


def _metadata_value(value: object) -> object:
    # By far the most frequent; the table of conversions is slower.
    if type(value) is int and value in INT64:
        return value
    if isinstance(value, PermanentError):
        raise value
    return json_value(value)


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows become documents, the same for every format.

    Attributes:
        id_column: holds the id.
        text_columns: joined in this order.
        metadata_columns: kept beside the text.
        separator: between text columns.
        media_type: of the text.
        limit: bytes of a document, text and metadata together.
        not_finite: how many values of each metadata column were NaN or infinite, and became null.
    """

    id_column: str
    text_columns: tuple[str, ...]
    metadata_columns: tuple[str, ...]
    separator: str
    media_type: str
    limit: int
    not_finite: Counter[str] = field(default_factory=Counter, compare=False)

    @classmethod
    def of(cls, settings: TableSourceSettings) -> Self:
        """Take over what the settings say about rows."""
        # The text is UTF-8 here whatever a page says of the encoding that it was once served in.
        html = settings.media_type == "text/html"
        return cls(
            id_column=settings.id_column,
            text_columns=settings.text_columns,
            metadata_columns=settings.metadata_columns,
            separator=settings.text_separator,
            media_type="text/html; charset=utf-8" if html else settings.media_type,
            limit=settings.max_document_bytes,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is used, once."""
        names = (self.id_column, *self.text_columns, *self.metadata_columns)
        return tuple(dict.fromkeys(names))

    def row(
        self,
        uri: str,
        id_value: object,
        texts: Sequence[object],
        metadata: Mapping[str, object],
        columns: Iterable[str] = (),
    ) -> Row:
        """One row, with an error if it cannot be a document.

        Args:
            uri: where it stands.
            id_value: as :func:`exact_id` takes it.
            texts: of the text columns that the row has, null or empty ones too.
            metadata: chosen values by column.
            columns: names that the row has, for messages.
        """
        doc_id = ""
        try:
            doc_id = exact_id(id_value, columns)
            content = self._content(texts, columns)
            kept = _metadata(metadata)
            if b"null" in kept:
                self._note_lossy(metadata)
            self._refuse_large(len(content) + len(kept))
        except PermanentError as error:
            return self.error(doc_id, uri, error)
        except RecursionError:
            return self.error(doc_id, uri, PermanentError("nested too deeply", code="metadata"))
        return (doc_id, content, self.media_type, kept, uri, None, None, None)

    def _note_lossy(self, metadata: Mapping[str, object]) -> None:
        for name, value in metadata.items():
            if type(value) not in _FINITE and is_lossy(value):
                self.not_finite[name] += 1

    def error(self, doc_id: str, uri: str, error: PermanentError) -> Row:
        """A row that could not be read; what to do about it stands in its message."""
        message = f"{error}; {error.hint}" if error.hint else str(error)
        return error_row(doc_id, self.media_type, uri, code=error.code, message=message)

    def _content(self, texts: Sequence[object], columns: Iterable[str]) -> bytes:
        if not texts:
            names = ", ".join(map(repr, columns))
            raise PermanentError(
                f"there is no text; the row has {names}",
                code="missing-text",
                hint="`source.text_columns` says which columns hold it",
            )
        parts = [value if type(value) is str else _text(value) for value in texts]
        text = parts[0] if len(parts) == 1 else self.separator.join(filter(None, parts))
        try:
            return text.encode()
        except UnicodeEncodeError:
            _refuse_surrogates(text, "text", code="encoding")
            raise

    def _refuse_large(self, size: int) -> None:
        if size > self.limit:
            raise self.too_large(size)

    def too_large(self, size: int) -> PermanentError:
        """The error of a row of ``size`` bytes."""
        return PermanentError(
            f"{size} bytes, the limit is {self.limit}: raise source.max_document_bytes, or split "
            "the row",
            code="too-large",
        )
