"""Plain text, reStructuredText and source code: the text is what stands there."""

from __future__ import annotations

import io
import tokenize

from embedmill.parser import ParsedDocument
from embedmill.parsers.decoding import Decoded, decode

# Part of the chunking recipe: raise it when the same bytes come out as another text.
VERSION = 1


def decoding_warnings(decoded: Decoded, fallback: str | None) -> tuple[str, ...]:
    """What a person should know about the encoding: that it was the fallback."""
    if fallback and decoded.encoding == fallback != "utf-8":
        return (f"decoded as {fallback}, the fallback encoding",)
    return ()


def parse_text(content: bytes, fallback: str | None) -> ParsedDocument:
    """Decode; line ends stay as they are.

    Raises:
        PermanentError: as :func:`embedmill.parsers.decoding.decode`.
    """
    decoded = decode(content, fallback=fallback)
    if decoded.encoding == "utf-8":
        # Nothing to say of it, as of most documents.
        return ParsedDocument(decoded.text)
    return ParsedDocument(
        decoded.text,
        metadata=decoded.metadata,
        warnings=decoding_warnings(decoded, fallback),
    )


def parse_python(content: bytes, fallback: str | None) -> ParsedDocument:
    """Decode as the interpreter would: byte order mark, coding line, UTF-8; then the fallback.

    Raises:
        PermanentError: as :func:`embedmill.parsers.decoding.decode`.
    """
    decoded = decode(content, declared=_coding_line(content), fallback=fallback)
    return ParsedDocument(
        decoded.text,
        format="code",
        metadata=decoded.metadata,
        warnings=decoding_warnings(decoded, fallback),
        language="python",
    )


def _coding_line(content: bytes) -> str | None:
    """Encoding that PEP 263 declares; None when there is no such line or nothing knows the name."""
    try:
        return tokenize.detect_encoding(io.BytesIO(content).readline)[0]
    except SyntaxError:
        return None
