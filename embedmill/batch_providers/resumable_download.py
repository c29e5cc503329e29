"""A download that goes on where it broke off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from embedmill.errors import TransientError

# In a row without a byte of progress; with progress a download may break off as often as it likes.
FRUITLESS_TRIES = 4
_FIRST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A reply that carries a file, or the rest of one.

    Attributes:
        start: byte of the file at which it begins; 0 when the server does not know ranges.
        end: size of the whole file as this reply has it; None when it does not say.
        chunks: what it carries; raises TransientError where it breaks off.
    """

    start: int
    end: int | None
    chunks: Iterator[bytes]


def download(
    open_at: Callable[[int], AbstractContextManager[Opened]],
    *,
    size: int | None,
    sleep: Callable[[float], None],
) -> Iterator[bytes]:
    """Yield every byte of a file exactly once.

    A reply that ends early, in silence or not, is followed by another that asks for the rest; where
    the server sends the whole file again, what was had is skipped.

    Args:
        open_at: asks for the file from a byte on; may raise TransientError.
        size: of the whole file as its owner states it; None when it does not.
        sleep: between tries that brought nothing: 1, 2, 4 seconds.

    Raises:
        TransientError: code ``truncated-results``: the file cannot be had whole.
    """
    position, fruitless = 0, 0
    while True:
        before = position
        try:
            with open_at(position) as reply:
                whole = size if size is not None else reply.end
                for chunk in _from(position, reply):
                    position += len(chunk)
                    yield chunk
            if whole is None or position >= whole:
                return
            trouble = f"{position} of {whole} bytes"
        except TransientError as error:
            trouble = str(error)
        fruitless = fruitless + 1 if position == before else 0
        if fruitless == FRUITLESS_TRIES:
            raise TransientError(
                f"the file cannot be read beyond byte {position}: {trouble}",
                code="truncated-results",
            )
        if fruitless:
            sleep(_FIRST_PAUSE_S * 2 ** (fruitless - 1))


def _from(position: int, reply: Opened) -> Iterator[bytes]:
    skip = position - reply.start
    if skip < 0:
        raise TransientError(f"asked for byte {position}, the reply begins at {reply.start}")
    for chunk in reply.chunks:
        if skip >= len(chunk):
            skip -= len(chunk)
            continue
        yield chunk[skip:] if skip else chunk
        skip = 0
