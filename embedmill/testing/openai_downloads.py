"""Which bytes of a file the fake OpenAI server sends, and what it says about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from embedmill.testing.openai_account import ApiError
from embedmill.testing.openai_faults import Fault


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a file.

    Attributes:
        status: 200, or 206 for a part that was asked for.
        start: first byte.
        stated: bytes that the reply promises.
        sent: bytes that it has; fewer when it is planned to break off.
        content_range: for the header of that name.
    """

    status: int
    start: int
    stated: int
    sent: int
    content_range: str


def content_parts(path: Path, asked: str | None, faults: list[Fault]) -> Part:
    """What to send.

    Args:
        path: of the file.
        asked: the ``Range`` header.
        faults: ``cut`` sends ``count`` bytes and hangs up; ``cut-at-line`` the same, but to the end
            of the line; ``short`` as well, and promises no more than it sends.

    Raises:
        ApiError: the file has no such part.
    """
    size = path.stat().st_size
    found = re.fullmatch(r"bytes=(\d+)-", asked or "")
    start = int(found[1]) if found else 0
    if found and start >= size:
        raise ApiError(416, "Requested Range Not Satisfiable")
    stated = sent = size - start
    for fault in faults:
        if fault.do == "cut":
            sent = min(sent, fault.count)
        if fault.do in {"cut-at-line", "short"}:
            sent = min(sent, _line_end(path, start + fault.count) - start)
            stated = sent if fault.do == "short" else stated
    return Part(206 if found else 200, start, stated, sent, f"bytes {start}-{size - 1}/{size}")


def _line_end(path: Path, position: int) -> int:
    with path.open("rb") as file:
        file.seek(position)
        file.readline()
        return file.tell()
