"""Bytes of files that may be gzip, whatever they are called."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import BinaryIO

from embedmill.errors import PermanentError

# Read and decompressed in pieces of this size: bounds memory whatever a file unpacks to.
CHUNK_BYTES = 2**20
_MAGIC = b"\x1f\x8b\x08"
# Header and trailer both belong to the gzip format (RFC 1952).
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


def plain_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content in pieces of at most ``CHUNK_BYTES``, decompressed if it is gzip.

    What a file is is read from its first bytes, not from its name. Members that follow one another
    are all read; zero bytes after the last one are padding.

    Raises:
        PermanentError: after everything that could be decompressed was yielded: the data ends
            early (``truncated``), or is not what its checksum says, or something else follows
            (``damaged``).
    """
    head = file.read(CHUNK_BYTES)
    if head.startswith(_MAGIC):
        yield from _inflated(head, file)
        return
    while head:
        yield head
        head = file.read(CHUNK_BYTES)


def is_gzip(file: BinaryIO) -> bool:
    """Whether the content is gzip; the file is then at its start again."""
    head = file.read(len(_MAGIC))
    file.seek(0)
    return head == _MAGIC


def _inflated(data: bytes, file: BinaryIO) -> Iterator[bytes]:
    while data:
        data = yield from _inflated_member(data, file)
        # Three bytes decide what follows.
        if len(data) < len(_MAGIC):
            data += file.read(CHUNK_BYTES)
        if data and not data.startswith(_MAGIC):
            _refuse_junk(data, file)
            return


def _inflated_member(data: bytes, file: BinaryIO) -> Generator[bytes, None, bytes]:
    """Yield one member; the generator's value is what was read beyond it."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    while not member.eof:
        if not data:
            raise PermanentError("the gzip data ends before its end mark", code="truncated")
        try:
            piece = member.decompress(data, CHUNK_BYTES)
        except zlib.error as error:
            raise PermanentError(f"the gzip data is damaged: {error}", code="damaged") from error
        if piece:
            yield piece
        data = member.unconsumed_tail or (b"" if member.eof else file.read(CHUNK_BYTES))
    return member.unused_data or file.read(CHUNK_BYTES)


def _refuse_junk(data: bytes, file: BinaryIO) -> None:
    while data:
        if data.strip(b"\0"):
            raise PermanentError("the gzip data is followed by something else", code="damaged")
        data = file.read(CHUNK_BYTES)
