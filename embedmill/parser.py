"""The contract of a parser: bytes of one media type to text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

# What the chunker may use of a text's structure.
TextFormat = Literal["text", "markdown", "code"]


class ParsedDocument(NamedTuple):
    """Text of one document; chunk offsets count its code points. A tuple: sooner made.

    Attributes:
        text: what is chunked; offsets refer to it. Blank text means an empty document.
        format: what structure the text has.
        metadata: found in the document itself (front matter, HTML title); JSON types only. Keys
            given by the source win over these.
        warnings: things a person should know (invalid front matter, encoding guessed), one line
            each.
        language: of code, for the code chunker (``python``); empty otherwise.
    """

    text: str
    format: TextFormat = "text"
    metadata: Mapping[str, object] = MappingProxyType({})
    warnings: tuple[str, ...] = ()
    language: str = ""


class Parser(Protocol):
    """Turns the bytes of one document into text."""

    def parse(self, content: bytes, media_type: str) -> ParsedDocument:
        """Parse ``content``.

        Raises:
            PermanentError: it cannot be parsed; the message says why and where (byte offset,
                encoding tried). Nothing is ever dropped in silence.
        """
        ...

    def fallback_for(self, content: bytes) -> str:
        """The fallback encoding, if it may decide the text of ``content``; else "".

        With another one such a document counts as changed.
        """
        ...
