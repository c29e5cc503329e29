"""Physical lines of text files, in UTF-8, with bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from embedmill.errors import PermanentError, SourceError
from embedmill.parsers.decoding import marked_encoding


def utf8_chunks(chunks: Iterator[bytes], *, encoding: str | None, label: str) -> Iterator[bytes]:
    """Yield the same text in UTF-8, without a byte order mark.

    A mark tells the encoding; else it is ``encoding``, else UTF-8, which passes as it is, valid or
    not: what is wrong with it belongs to one row. Bytes that another encoding does not know come
    out as invalid UTF-8 for the same reason.

    Raises:
        SourceError: it looks like UTF-16 without a byte order mark, and no encoding is given.
        PermanentError: the text cannot be decoded any further (``encoding``).
    """
    head = b""
    # Members of a gzip file may be of any size.
    while len(head) < len(codecs.BOM_UTF32_LE) and (piece := next(chunks, b"")):
        head += piece
    marked = marked_encoding(head)
    if not marked and not encoding:
        _refuse_wide_characters(head, label)
    codec, skipped = marked or (encoding or "utf-8", 0)
    pieces = _chained(head[skipped:], chunks)
    return pieces if codec.startswith("utf-8") else _transcoded(pieces, codec)


def lines_of(chunks: Iterable[bytes], limit: int) -> Iterator[bytes | Overlong]:
    r"""Yield the lines without their LF; nothing else ends a line, a CR before it stays.

    A line of more than ``limit`` bytes is not held; what is known of it is yielded in its place.
    """
    line = _OpenLine(limit)
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        if ended:
            line.add(ended[0])
            yield line.take()
            for piece in ended[1:]:
                yield piece if len(piece) <= limit else Overlong(len(piece), piece.count(b'"'))
        line.add(rest)
    if line.size:
        yield line.take()


def _chained(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from chunks


def _transcoded(chunks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    # Neither handler turns a bad byte into a character that the source might have meant.
    errors = "surrogatepass" if codec.startswith(("utf-16", "utf-32")) else "surrogateescape"
    decoder = codecs.getincrementaldecoder(codec)(errors)
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeError as error:
        raise PermanentError(f"not {codec} any further: {error}", code="encoding") from error


def _refuse_wide_characters(head: bytes, label: str) -> None:
    # ASCII in UTF-16 is half NUL bytes; text in any other encoding has next to none.
    sample = head[:1024]
    if sample.count(0) * 8 > len(sample):
        order = "le" if sample[1::2].count(0) >= sample[::2].count(0) else "be"
        raise SourceError(
            f"{label} looks like UTF-16 without a byte order mark",
            code="encoding",
            hint=f"set `source.encoding: utf-16-{order}`",
        )


@dataclass(frozen=True, slots=True)
class Overlong:
    """Stands for a line that is too long to be held.

    Attributes:
        size: in bytes, without the LF.
        quotes: number of quote characters in it.
    """

    size: int
    quotes: int


@dataclass(slots=True)
class _OpenLine:
    limit: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    quotes: int = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self.parts.append(piece)
        if self.size > self.limit:
            self.quotes += sum(part.count(b'"') for part in self.parts)
            self.parts.clear()

    def take(self) -> bytes | Overlong:
        whole = self.size <= self.limit
        line = b"".join(self.parts) if whole else Overlong(self.size, self.quotes)
        self.parts.clear()
        self.size = self.quotes = 0
        return line
