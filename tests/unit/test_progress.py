"""Progress: a line now and then, and nothing else, where nobody looks."""

import io
from dataclasses import replace

from rich.console import Console

from embedmill.counts import DocumentCounts
from pipelines.progress import LINE_EVERY_S, line, shown
from pipelines.run_options import Progress

PROGRESS = Progress(DocumentCounts(read=1200, unchanged=1000, dead=3), 500, 4, 6, scanning=True)


def test_a_line_says_what_is_done_and_what_is_left():
    text = line(PROGRESS, 10.0)
    assert "10 s: reading 1,200 documents (1,000 unchanged, 3 dead)" in text
    assert "500 chunks embedded, 50/s; 6 segments stored, 4 to go" in text


def test_a_line_says_what_is_waited_for_at_the_provider():
    assert line(replace(PROGRESS, jobs=1), 10.0).endswith("4 to go; waiting for 1 embedding job")


def test_no_time_is_no_division_by_it():
    assert "0/s" in line(PROGRESS, 0.0)


def test_without_a_terminal_a_line_comes_now_and_then(clock):
    written = io.StringIO()
    with shown(Console(file=written, force_terminal=False, width=40), clock) as tell:
        for _ in range(50):
            clock.sleep(LINE_EVERY_S / 10)
            tell(PROGRESS)
    lines = written.getvalue().splitlines()
    assert len(lines) == 5
    assert all(text.endswith("to go") for text in lines)


def test_on_a_terminal_one_line_is_kept_up_to_date(clock):
    written = io.StringIO()
    with shown(Console(file=written, force_terminal=True, width=200), clock) as tell:
        tell(PROGRESS)
    assert "1,200 documents" in written.getvalue()
