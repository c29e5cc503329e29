"""Which bytes of a file the fake OpenAI server sends, and what it says about them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from embedmill.testing.fake_api import Reply
from embedmill.testing.openai_account import ApiError, StoredFile
from embedmill.testing.openai_faults import Fault

_CHUNK = 1 << 18


def content_reply(file: StoredFile, asked: str | None, faults: Sequence[Fault]) -> Reply:
    """The file, or the part of it that was asked for, as it is read.

    Args:
        file: that is sent.
        asked: the ``Range`` header.
        faults: ``cut`` sends ``count`` bytes and hangs up; ``cut-at-line`` the same, but to the end
            of the line; ``short`` as well, and promises no more than it sends.

    Raises:
        ApiError: the file has no such part.
    """
    size = file.size
    found = re.fullmatch(r"bytes=(\d+)-", asked or "")
    start = int(found[1]) if found else 0
    if found and start >= size:
        raise ApiError(416, "Requested Range Not Satisfiable")
    stated = sent = size - start
    for fault in faults:
        if fault.do == "cut":
            sent = min(sent, fault.count)
        if fault.do in {"cut-at-line", "short"}:
            sent = min(sent, _line_end(file.path, start + fault.count) - start)
            stated = sent if fault.do == "short" else stated
    headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
    if found:
        headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    status, kind = 206 if found else 200, "application/octet-stream"
    return Reply(status, _bytes_of(file.path, start, sent), kind, headers, stated)


def _bytes_of(path: Path, start: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as source:
        source.seek(start)
        left = length
        while left and (chunk := source.read(min(left, _CHUNK))):
            yield chunk
            left -= len(chunk)


def _line_end(path: Path, position: int) -> int:
    with path.open("rb") as file:
        file.seek(position)
        file.readline()
        return file.tell()
