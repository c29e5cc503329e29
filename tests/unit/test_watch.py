"""A watched publication: failing checks take readers back, one bad check does not."""

import threading
import time

import psutil
import pytest

from embedmill.errors import IndexLockedError, SettingsError, StopRunError, TransientError
from embedmill.manifest import Manifest
from embedmill.vector_stores.build import open_store
from pipelines.cli_options import seconds
from pipelines.watch import WatchPlan, run_check, watch


@pytest.fixture
def index(small_index):
    made = small_index()
    made.ingest({"a": "one two three"})
    made.swap(embedder={"kind": "hashing", "dimension": 12})
    made.reembed()
    made.publish()
    return made


def watched(index, results, *, for_s=100.0, **more):
    """Watch with planned results of the check; what it was given, and what became of it."""
    planned, given = list(results), []

    def check(command, variables, timeout_s):
        given.append(variables)
        result = planned.pop(0) if planned else ""
        return result() if callable(result) else result

    with index.seams():
        plan = WatchPlan("check", for_s, every_s=10.0)
        done = watch(
            index.settings,
            index.manifest.published,
            plan,
            clock=index.clock,
            sleep=index.clock.sleep,
            check=check,
            **more,
        )
    return done, given


def test_good_checks_leave_the_version_published(index):
    done, given = watched(index, [])
    assert (done.checks, done.failed, done.ended) == (11, 0, "time")
    assert index.manifest.published.number == 2
    assert given[0]["EMBEDMILL_VERSION"] == "2"
    assert given[0]["EMBEDMILL_COLLECTION"] == "small--v2"


def test_one_bad_check_is_an_accident_three_in_a_row_are_not(index):
    done, _ = watched(index, ["down", "down", "", "down", "", "down", "down"])
    assert (done.failed, done.ended) == (5, "time")
    assert index.manifest.published.number == 2
    done, _ = watched(index, ["", "down", "down", "down"])
    assert (done.checks, done.ended) == (4, "rolled-back")
    assert done.back.switch.after.number == 1
    assert index.manifest.published.number == 1


def test_who_moved_readers_meanwhile_is_not_overruled(index):
    done, _ = watched(index, [lambda: index.rollback() and "", "down", "down", "down"])
    assert (done.checks, done.ended) == (1, "overtaken")
    assert index.manifest.published.number == 1


def test_a_watch_that_is_stopped_leaves_the_version_published(index):
    stop = threading.Event()
    done, _ = watched(index, [lambda: stop.set() or "down"], stop=stop)
    assert (done.checks, done.ended) == (1, "interrupted")
    assert index.manifest.published.number == 2


def test_a_check_is_a_command_for_the_shell():
    assert run_check('test "$EMBEDMILL_VERSION" = 2', {"EMBEDMILL_VERSION": "2"}, 10) == ""
    assert run_check("echo broken >&2; exit 3", {}, 10) == "status 3: broken"
    assert run_check("sleep 60", {}, 0.2) == "no answer within 0.2 s"


def test_a_check_that_hangs_is_ended_with_all_that_it_has_started(tmp_path):
    started = tmp_path / "started"
    assert run_check(f"sleep 60 & echo $! > {started}; wait", {}, 1.0) == "no answer within 1 s"
    child = int(started.read_text())
    # What was killed ends when it has a turn, however busy the machine is.
    while not has_ended(child):
        time.sleep(0.01)


def has_ended(process):
    try:
        # Whose it is now may have yet to ask for its status.
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_does_not_answer_for_a_moment_ends_no_watch(index, monkeypatch):
    real, silent = Manifest.read, []

    def read(self):
        if silent:
            silent.pop()
            raise TransientError("no answer")
        return real(self)

    def down_and_silent():
        silent.append(True)
        return "down"

    monkeypatch.setattr(Manifest, "read", read)
    # First when it is looked whether somebody else has moved readers, then at the rollback.
    done, _ = watched(index, [down_and_silent, "down", down_and_silent, "down"])
    assert (done.checks, done.ended) == (4, "rolled-back")
    assert index.manifest.published.number == 1


def test_a_store_that_a_sync_holds_is_waited_for(index, monkeypatch):
    held = iter([True, True])

    def opened(settings, pace):
        if next(held, False):
            raise IndexLockedError("a sync has the store")
        return open_store(settings, pace)

    monkeypatch.setattr("embedmill.assembly.open_store", opened)
    done, _ = watched(index, ["down"] * 5)
    assert (done.checks, done.ended) == (5, "rolled-back")
    assert index.manifest.published.number == 1


def test_a_watch_that_cannot_take_readers_back_does_not_end_well(index, monkeypatch):
    def opened(*_):
        raise IndexLockedError("a sync has the store")

    monkeypatch.setattr("embedmill.assembly.open_store", opened)
    with pytest.raises(StopRunError, match="last 4 checks of v2 failed") as stopped:
        watched(index, ["down"] * 4, for_s=30.0)
    assert "a sync has the store" in str(stopped.value)
    assert "embedmill rollback" in stopped.value.hint
    assert index.manifest.published.number == 2


@pytest.mark.parametrize(("text", "number"), [("90s", 90), ("30m", 1800), ("1.5h", 5400)])
def test_times_are_written_with_their_unit(text, number):
    assert seconds(text, "--watch") == number


@pytest.mark.parametrize("text", ["30", "m", "-3s", "3d", "0s", "0.0h", "99999999h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(SettingsError, match="--watch takes"):
        seconds(text, "--watch")


def test_what_a_rollback_has_brought_readers_to_is_left_for_the_version_before(index):
    index.rollback()
    index.rollback(2)
    done, _ = watched(index, ["down", "down", "down"])
    assert done.ended == "rolled-back"
    assert done.back.switch.changed
    assert index.manifest.published.number == 1
