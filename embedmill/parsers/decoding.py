"""Bytes to text: which encoding, and what happens when none fits."""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import NamedTuple

from embedmill.errors import PermanentError

# Longest first: the mark of UTF-32 begins with that of UTF-16.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Their plain text is full of NUL bytes, which mark binary files otherwise.
_WIDE = ("utf-16", "utf-32")


@lru_cache(maxsize=64)
def codec_name(encoding: str) -> str:
    """Python's own name for an encoding that Python knows, whatever it is called."""
    return codecs.lookup(encoding).name


def marked_encoding(content: bytes) -> tuple[str, int] | None:
    """Encoding that a byte order mark tells, with the length of the mark."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return encoding, len(mark)
    return None


def decode(content: bytes, *, declared: str | None = None, fallback: str | None = None) -> Decoded:
    """Decode strictly: by byte order mark, then as declared, then UTF-8, then the fallback.

    A byte order mark counts even against a declaration; it is not part of the text. No byte is
    ever replaced or dropped.

    Args:
        content: the whole document.
        declared: what the document says of itself (coding line, ``<meta charset>``).
        fallback: encoding of documents that are none of these, by Python's own name.

    Raises:
        PermanentError: no encoding fits (``encoding``, with the byte offset), or there are NUL
            characters (``binary``).
    """
    if declared is None and content.isascii() and b"\0" not in content:
        # Most documents. To look for marks and to name encodings takes two thirds longer.
        return Decoded(content.decode("ascii"), "utf-8")
    marked = marked_encoding(content)
    if marked:
        encoding, skipped = marked
        text = _strict(content[skipped:], encoding, offset=skipped)
        return _without_nul(Decoded(text, encoding))
    candidates = [declared, "utf-8", fallback]
    if fallback and fallback.startswith(_WIDE) and b"\0" in content:
        candidates = [fallback]
    return _without_nul(_first_that_fits(content, [name for name in candidates if name]))


def needs_fallback(content: bytes) -> bool:
    """Whether a fallback encoding may decide the text: it is no UTF-8, or holds NUL bytes.

    What has a mark or declares its encoding may be among these.
    """
    if content.isascii():
        return b"\0" in content
    try:
        return "\0" in content.decode()
    except UnicodeDecodeError:
        return True


def _first_that_fits(content: bytes, candidates: list[str]) -> Decoded:
    failures = []
    for encoding in candidates:
        try:
            text = _strict(content, encoding, offset=0)
        except PermanentError as error:
            failures.append(str(error))
        else:
            # ASCII is UTF-8 already; other names may be aliases.
            name = codec_name(encoding)
            return Decoded(text.removeprefix("\ufeff"), "utf-8" if name == "ascii" else name)
    if b"\0" in content:
        raise _binary(content.index(b"\0"))
    raise PermanentError(
        "; ".join(failures),
        code="encoding",
        hint="save it as UTF-8, or set `source.fallback_encoding`: the next ingest reads it with "
        "that",
    )


def _strict(content: bytes, encoding: str, *, offset: int) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = content[error.start]
        problem = f"byte 0x{byte:02x} at offset {error.start + offset}"
    except (LookupError, UnicodeError) as error:
        problem = str(error)
    raise PermanentError(f"not {encoding}: {problem}", code="encoding")


def _without_nul(decoded: Decoded) -> Decoded:
    if "\0" in decoded.text:
        raise _binary(decoded.text.index("\0"))
    return decoded


def _binary(offset: int) -> PermanentError:
    return PermanentError(
        f"NUL at offset {offset}: binary, or UTF-16 without a byte order mark",
        code="binary",
        hint="leave it out of the source; a file in UTF-16 (source.kind: files) is read by the "
        "next ingest with `source.fallback_encoding` (utf-16-le)",
    )


class Decoded(NamedTuple):
    """Text with the encoding that it was in. A tuple: a third of a dataclass's time to make.

    Attributes:
        text: without a leading byte order mark, line ends as they stand.
        encoding: as Python names it.
    """

    text: str
    encoding: str

    @property
    def metadata(self) -> dict[str, object]:
        """``{"encoding": ...}`` when it was not UTF-8."""
        return {} if self.encoding == "utf-8" else {"encoding": self.encoding}
