"""Multipart bodies, read as they arrive: an upload of any size takes a megabyte."""

from __future__ import annotations

import re
from collections.abc import Iterator

from embedmill.testing.fake_api import Request
from embedmill.testing.openai_account import ApiError

_CHUNK = 1 << 18


class MultipartReader:
    """Reads the parts of one body in turn; a part's content has to be read before the next part."""

    def __init__(self, request: Request) -> None:
        content_type = request.headers.get("content-type", "")
        found = re.search(r'boundary="?([^";]+)"?', content_type)
        if found is None:
            raise ApiError(400, "no multipart body")
        self._mark = b"\r\n--" + found[1].encode("ascii")
        self._request = request
        # The first boundary has no line before it.
        self._buffer = b"\r\n"

    def parts(self) -> Iterator[tuple[str, str, Iterator[bytes]]]:
        """Name, file name (or an empty text) and content of each part."""
        for _ in self._until(self._mark):
            pass
        while True:
            head = b"".join(self._until(b"\r\n"))
            if head.startswith(b"--"):
                return
            headers = b"".join(self._until(b"\r\n\r\n")).decode("utf-8", "replace")
            yield (
                _field(r'[; ]name="([^"]*)"', headers),
                _field(r'filename="([^"]*)"', headers),
                self._until(self._mark),
            )

    def _until(self, mark: bytes) -> Iterator[bytes]:
        while True:
            at = self._buffer.find(mark)
            if at >= 0:
                found, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
                yield found
                return
            keep = len(mark) - 1
            if len(self._buffer) > keep:
                found, self._buffer = self._buffer[:-keep], self._buffer[-keep:]
                yield found
            if not self._read():
                raise ApiError(400, "the multipart body ends early")

    def _read(self) -> bool:
        more = self._request.read(_CHUNK)
        self._buffer += more
        return bool(more)


def _field(pattern: str, headers: str) -> str:
    found = re.search(pattern, headers)
    return found[1] if found else ""
