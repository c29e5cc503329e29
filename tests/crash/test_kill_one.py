"""One process of a run is killed, or asked to end."""

import os
import re
import signal

import psutil
import pytest
from commands import INTERRUPTED

from embedmill.assembly import workspace_of
from embedmill.run_report import read_reports
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import made_up_texts

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
TEXTS = made_up_texts(300)


@pytest.fixture
def begin(index, run):
    """Starts a run, or resumes one, and returns in the middle of it; there it stays."""

    def begin(*arguments):
        index.write(TEXTS)
        # One worker of each kind: each is a process that takes a second of processor time to start.
        index.settings(shard_workers=1, embed_workers=1)
        index.hold()
        enough = index.calls() + 5
        # Slow enough that there is still work when it is let go and told to end.
        command = run(*arguments, pause_s=0.3, held_after=enough)
        command.wait_until(lambda: index.calls() >= enough)
        assert command.process.poll() is None, command.stderr.read_text()
        return command

    return begin


def finishes(index, command, expected):
    assert command.wait() == 0, command.stderr.read_text()
    assert command.report()["status"] == "succeeded"
    assert_same_contents(contents_of(index.settings()), expected)


def others_of(command):
    # Ray's agents look for a raylet that was killed for a minute; they hold nothing of ours.
    return [p for p in command.processes() if p.pid != command.pid and "Agent" not in p.name()]


def statuses(index):
    reports = read_reports(workspace_of(index.settings()), "rehearsal")
    return [report.status if report else None for _, report in reports]


def test_a_run_in_one_process_that_is_asked_to_stop_can_be_resumed(
    begin, index, run, uninterrupted
):
    interrupted = begin("--local")
    asked_to_stop(interrupted, signal.SIGINT)
    assert statuses(index) == ["interrupted"]
    expected, embedded_once = uninterrupted(TEXTS)
    finishes(index, run("--local"), expected)
    # What was in flight was waited for: nothing was embedded twice.
    assert index.texts_embedded() == embedded_once


@pytest.mark.ray
def test_a_run_on_ray_goes_on_after_its_driver_was_killed_and_after_it_was_asked_to_stop(
    begin, index, run, uninterrupted
):
    killed = begin()
    others = others_of(killed)
    # As the system shows them, which cuts names off.
    names = {process.name()[:15] for process in others}
    workers = ("ReadWorker", "ShardWorker", "EmbedWorker", "StoreWriter")
    assert {f"ray::{worker}"[:15] for worker in workers} <= names
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(60)
    assert psutil.wait_procs(others, timeout=60)[1] == []
    embedded_twice_at_most = 32 + 10

    # As by Ctrl-C in a terminal: every process of the session gets it. A job that is stopped gets
    # SIGTERM (tests/ray/test_job_submit.py).
    asked_to_stop(begin(), signal.SIGINT, all_of_them=True)
    assert statuses(index) == ["interrupted", None]

    expected, embedded_once = uninterrupted(TEXTS)
    last = run()
    finishes(index, last, expected)
    assert index.texts_embedded() <= embedded_once + embedded_twice_at_most
    # Ray and its workers said nothing and are gone; how far the run is may have been told.
    said = last.stderr.read_text().splitlines()
    assert [line for line in said if not re.match(r"\d+ s: \w", line)] == []
    assert psutil.wait_procs(others_of(last), timeout=60)[1] == []


def asked_to_stop(command, number, *, all_of_them=False):
    """It ends with the status of an interrupted run, says so, and leaves no process."""
    others = others_of(command)
    if all_of_them:
        os.killpg(command.pid, number)
    else:
        os.kill(command.pid, number)
    command.index.let_go()
    assert command.wait() == INTERRUPTED, command.stderr.read_text()
    assert psutil.wait_procs(others, timeout=60)[1] == []
    said = command.stderr.read_text()
    assert "the run was stopped; all that was committed is kept" in said
    assert "next: run the same command again to go on" in said
    assert "Traceback" not in said


@pytest.mark.ray
def test_a_run_does_not_wait_for_a_ray_that_is_gone(begin, index, run, uninterrupted):
    command = begin()
    raylets = [process for process in command.processes() if process.name() == "raylet"]
    assert len(raylets) == 1
    raylets[0].kill()
    index.let_go()
    expected = uninterrupted(TEXTS)[0]
    # Workers that live may finish the run; then it has succeeded. Else it makes no difference which
    # executor goes on.
    finishes(index, command if command.wait(150) == 0 else run("--local"), expected)
