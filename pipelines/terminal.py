"""What people see: consoles that show the control characters of other people's texts."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from embedmill.errors import StopRunError

# All but tab and line feed: C0, DEL and C1, what turns the direction of a line, and halves of a
# pair, which no stream can encode.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Text as a terminal may be given it: ``\x1b`` in place of the escape character.

    Ids, texts and paths are what somebody else wrote. Such a character among them would clear the
    screen, or change what stands on it.
    """
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


class Terminal(Console):
    """A console whose texts are made :func:`visible`; its own styles are untouched.

    When its reader goes away (``| head``) the rest is for nobody, and the command ends as it would.

    Raises:
        StopRunError: from whatever writes: the disk behind it is full.
    """

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own
        """As rich does it."""
        with _writable():
            super().print(*objects, **options)

    def say(self, text: str) -> None:
        """Print text as it is, however wide: a path in brackets is no style of rich's."""
        self.print(text, markup=False, highlight=False, soft_wrap=True)

    def write(self, text: str) -> None:
        """Write a line as it is: for programs, and rich takes seconds for megabytes."""
        if self.quiet:
            return
        try:
            with _writable():
                self.file.write(f"{text}\n")
                self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Called by rich as well."""
        self.quiet = True
        # What Python flushes at the end would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's own
        """What every text passes on its way, cells of tables included; ``:key:`` is no emoji."""
        return super().render_str(visible(text), **{**options, "emoji": False})


@contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StopRunError(
            f"what the command says cannot be written: {error.strerror}",
            hint="make room where its output goes; what it did is done: embedmill status -c "
            "SETTINGS shows it",
        ) from error


class VisibleFormatter(logging.Formatter):
    """Log lines, made :func:`visible`."""

    def format(self, record: logging.LogRecord) -> str:
        """Tracebacks keep their lines."""
        return visible(super().format(record))
