"""What is written for people: nothing that a terminal obeys, and no end but the command's own."""

import io
import logging
import os
from pathlib import Path

import pytest
from rich.table import Table

from embedmill.errors import StopRunError
from pipelines.terminal import Terminal, VisibleFormatter, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\tb\nc", "a\tb\nc"),
        ("\r\x07\x7f\x9b", r"\r\x07\x7f\x9b"),
        ("\u202etxt.exe", r"\u202etxt.exe"),
        ("\udcff", r"\udcff"),
        ("Ωμέγα 日本語 😀 [bold]", "Ωμέγα 日本語 😀 [bold]"),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert visible(text) == shown


def test_lines_cells_and_log_lines_are_made_visible():
    written = io.StringIO()
    console = Terminal(file=written, width=80)
    table = Table(box=None)
    table.add_row("cell \x1b[31m")
    console.print("[bold]line[/bold] \x1b[31m")
    console.print(table)
    assert r"line \x1b[31m" in written.getvalue()
    assert r"cell \x1b[31m" in written.getvalue()
    record = logging.makeLogRecord({"msg": "log %s", "args": ("\x1b[31m",)})
    assert VisibleFormatter("%(message)s").format(record) == r"log \x1b[31m"


def test_what_rich_would_take_for_a_style_or_an_emoji_is_said_as_it_is():
    written = io.StringIO()
    console = Terminal(file=written, width=20)
    console.say("embedmill export --to data[old]/:key: and as wide as it likes")
    assert written.getvalue() == "embedmill export --to data[old]/:key: and as wide as it likes\n"
    table = Table(box=None)
    table.add_row(":key:")
    console.print(table)
    assert ":key:" in written.getvalue().splitlines()[-1]


def test_a_reader_that_goes_away_ends_no_command():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file:
        console = Terminal(file=file)
        for _ in range(2):
            console.print("nobody reads this")
            console.write("nor this")


def test_a_full_disk_behind_the_output_is_said():
    with Path("/dev/full").open("w") as file:
        console = Terminal(file=file)
        for write in (console.print, console.write):
            with pytest.raises(StopRunError, match="cannot be written: No space left"):
                write("lost")
        # The file would say it again when it is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
