"""One process of a run is killed, or asked to end."""

import os
import signal

import psutil
import pytest
from commands import INTERRUPTED

from embedmill.assembly import workspace_of
from embedmill.run_report import read_reports
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import made_up_texts

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


@pytest.fixture
def begun(index, run):
    """Starts a run and returns in the middle of it."""

    def begin(texts, arguments):
        index.write(texts)
        index.settings()
        command = run(*arguments)
        command.wait_until(lambda: index.calls() >= 5)
        assert command.process.poll() is None, command.stderr.read_text()
        return command

    return begin


@pytest.mark.ray
def test_workers_end_with_their_driver_and_let_go_of_the_store(begun, index, run, uninterrupted):
    texts = made_up_texts(300)
    command = begun(texts, [])
    # Ray's agents look for their raylet for a minute; they hold nothing of ours.
    others = [p for p in command.processes() if p.pid != command.pid and "Agent" not in p.name()]
    assert len([process for process in others if process.name().startswith("ray::Host")]) > 3
    os.kill(command.pid, signal.SIGKILL)
    command.wait(10)
    assert psutil.wait_procs(others, timeout=15)[1] == []
    finishes(index, run(), uninterrupted(texts)[0])


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        pytest.param(["--local"], signal.SIGINT, id="local"),
        pytest.param([], signal.SIGTERM, id="ray", marks=pytest.mark.ray),
    ],
)
def test_a_run_that_is_asked_to_stop_can_be_resumed(
    begun, index, run, uninterrupted, arguments, number
):
    texts = made_up_texts(300)
    command = begun(texts, arguments)
    others = [process for process in command.processes() if process.pid != command.pid]
    os.kill(command.pid, number)
    assert command.wait() == INTERRUPTED
    assert psutil.wait_procs(others, timeout=15)[1] == []
    said = command.stderr.read_text()
    assert "the run was stopped; all that was committed is kept" in said
    assert "next: run the same command again to go on" in said
    reports = [report for _, report in read_reports(workspace_of(index.settings()), "rehearsal")]
    assert [report.status for report in reports] == ["interrupted"]
    # In the end every text has been embedded once: what was in flight was waited for.
    expected, embedded_once = uninterrupted(texts)
    finishes(index, run(*arguments), expected)
    assert index.texts_embedded() == embedded_once


@pytest.mark.ray
def test_ctrl_c_in_a_terminal_reaches_every_process_and_still_stops_in_order(begun, index):
    command = begun(made_up_texts(300), [])
    os.killpg(command.pid, signal.SIGINT)
    assert command.wait() == INTERRUPTED
    assert "Traceback" not in command.stderr.read_text()


@pytest.mark.ray
def test_a_run_does_not_wait_for_a_ray_that_is_gone(begun, index, run, uninterrupted):
    texts = made_up_texts(300)
    command = begun(texts, [])
    raylets = [process for process in command.processes() if process.name() == "raylet"]
    assert len(raylets) == 1
    raylets[0].kill()
    # Workers that live may finish the run; then it has succeeded.
    expected = uninterrupted(texts)[0]
    finishes(index, command if command.wait(90) == 0 else run(), expected)


def finishes(index, command, expected):
    assert command.wait() == 0, command.stderr.read_text()
    assert command.report()["status"] == "succeeded"
    assert_same_contents(contents_of(index.settings()), expected)
