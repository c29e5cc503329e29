"""One run at a time on an index: who is refused, who takes over, and what a lost lease does."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import psutil
import pytest
from typer.testing import CliRunner

from embedmill.assembly import workspace_of
from embedmill.errors import IndexLockedError, ShardOwnedElsewhereError
from embedmill.executor import InlineExecutor
from embedmill.lease import Holder, Lease, take_lease
from embedmill.run_report import start_run
from embedmill.sealed_json import sealed
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.testing.rehearsal import Rehearsal, made_up_texts
from pipelines.cli import app
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions

LOCKED = 6
FOLDER = "indexes/a/lease"


def ingest_beside(index):
    """The same command in this process, while that of another one may run."""
    return CliRunner().invoke(app, ["ingest", str(index.config), "--local"], catch_exceptions=False)


@pytest.fixture
def begun(index, run):
    """A run in the middle of its work; there it stays until it is let go."""
    index.write(made_up_texts(60))
    index.settings()
    command = run("--local", held_after=2)
    command.wait_until(lambda: index.calls() >= 2)
    assert command.process.poll() is None, command.stderr.read_text()
    return command


@pytest.mark.crash
def test_a_second_process_is_refused_by_the_name_of_the_first(index, begun):
    second = ingest_beside(index)
    assert second.exit_code == LOCKED
    said = " ".join(second.stderr.split())
    assert f"ingest by process {begun.pid} on {socket.gethostname()}, since 2" in said
    assert "--take-over" in said
    index.let_go()
    assert begun.wait() == 0


@pytest.mark.crash
def test_the_next_run_just_works_after_the_holder_was_killed(index, begun, uninterrupted):
    begun.kill_all()
    third = ingest_beside(index)
    assert third.exit_code == 0, third.stderr
    settings = index.settings()
    assert_same_contents(contents_of(settings), uninterrupted(made_up_texts(60))[0])


@pytest.mark.crash
def test_deleting_the_lease_by_hand_breaks_nothing(index, begun, uninterrupted):
    shutil.rmtree(index.folder / "workspace" / "indexes" / "rehearsal" / "lease")
    second = ingest_beside(index)
    # The store, or a number that is taken, refuses whom the lease would have refused.
    assert second.exit_code in {0, 4, 5, LOCKED}, second.stderr
    index.let_go()
    assert begun.wait() in {0, 4, 5, LOCKED}
    last = ingest_beside(index)
    assert last.exit_code == 0, last.stderr
    settings = index.settings()
    assert_same_contents(contents_of(settings), uninterrupted(made_up_texts(60))[0])


def lease_of(workspace, **how):
    return take_lease(workspace, "a", "ingest", **how)


def held(workspace, **more):
    """Write the lease file of a holder; what is not said is true of this process."""
    me = Holder.this_process("ingest")
    record = {name: getattr(me, name) for name in Holder.__slots__}
    workspace.create(f"{FOLDER}/00000001.json", sealed({**record, **more}))
    workspace.replace(f"{FOLDER}/00000001.beat", b"1")


def beating(workspace):
    """Time in which the holder writes its heartbeat."""
    return lambda _: workspace.replace(f"{FOLDER}/00000001.beat", b"2")


def no_time(seconds):
    """Time in which nothing happens."""


ELSEWHERE = [{"host": "another-host"}, {"place": "another start, another container"}]


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_holder_elsewhere_whose_heart_beats_is_not_disturbed(where):
    workspace = MemoryWorkspace()
    held(workspace, **where)
    with pytest.raises(IndexLockedError, match=f"process {os.getpid()} on"):
        lease_of(workspace, sleep=beating(workspace))


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_holder_elsewhere_whose_heart_stands_still_is_taken_over_after_a_while(where):
    workspace, waited = MemoryWorkspace(), []
    held(workspace, **where)
    assert lease_of(workspace, sleep=waited.append).number == 2
    assert waited == [25.0]


@pytest.mark.parametrize("content", [b"", b'{"body": {"host": "h', b"[]", b"\xff"])
def test_a_lease_file_that_was_spoilt_by_hand_is_judged_by_its_heartbeat(content):
    workspace = MemoryWorkspace()
    held(workspace)
    workspace.replace(f"{FOLDER}/00000001.json", content)
    with pytest.raises(IndexLockedError, match="cannot be read"):
        lease_of(workspace, sleep=beating(workspace))
    assert lease_of(workspace, sleep=no_time).number == 2


def never(seconds):
    raise AssertionError("waited for a process of this machine")


def test_a_holder_of_this_machine_that_has_ended_is_not_waited_for():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    workspace = MemoryWorkspace()
    held(workspace, pid=process.pid)
    assert lease_of(workspace, sleep=never).number == 2


def test_a_later_process_with_the_holders_number_holds_nothing():
    # A process that is not this one, and lives until its input ends.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = psutil.Process(process.pid).create_time()
        workspace = MemoryWorkspace()
        held(workspace, pid=process.pid, process_started=started)
        with pytest.raises(IndexLockedError, match=f"process {process.pid} on"):
            lease_of(workspace, sleep=never)
        workspace = MemoryWorkspace()
        held(workspace, pid=process.pid, process_started=started - 3600)
        assert lease_of(workspace, sleep=never).number == 2
        process.kill()


def test_of_two_that_take_at_once_one_wins():
    for _ in range(50):
        workspace, barrier, results = MemoryWorkspace(), threading.Barrier(2), []
        held(workspace, host="another-host")

        def take(workspace=workspace, barrier=barrier, results=results):
            try:
                results.append(lease_of(workspace, sleep=lambda _: barrier.wait(10)).number)
            except IndexLockedError as error:
                results.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert sorted(map(type, results), key=str) == [int, str], results


def test_the_holder_learns_that_it_was_taken_over():
    workspace = MemoryWorkspace()
    with lease_of(workspace) as first:
        first._beat()
        assert not first.lost.is_set()
        with lease_of(workspace, take_over=True) as second:
            first._beat()
            assert first.lost.is_set()
            second._beat()
            assert not second.lost.is_set()


def test_a_holder_puts_back_what_was_spoilt_and_yields_to_whoever_was_faster():
    workspace = MemoryWorkspace()
    with lease_of(workspace) as first:
        original = workspace.read(f"{FOLDER}/00000001.json")
        workspace.replace(f"{FOLDER}/00000001.json", b"")
        first._beat()
        assert workspace.read(f"{FOLDER}/00000001.json") == original
        workspace.delete(list(workspace.files))
        first._beat()
        assert workspace.read(f"{FOLDER}/00000001.json") == original
        workspace.delete(list(workspace.files))
        # The same number, in the same process and second: still another lease.
        with lease_of(workspace) as second:
            assert second.number == first.number
            first._beat()
            assert first.lost.is_set()
            first._release()
            assert workspace.read(f"{FOLDER}/00000001.released") is None


def test_a_holder_that_lists_just_before_it_is_taken_over_stops_itself_and_not_the_other():
    workspace = MemoryWorkspace()
    with lease_of(workspace) as first:
        original = workspace.read(f"{FOLDER}/00000001.json")
        with lease_of(workspace, take_over=True) as second:
            # As it does when it listed before the other one came, and read after.
            workspace.create(f"{FOLDER}/00000001.json", original)
            first._beat()
            second._beat()
            assert first.lost.is_set()
            assert not second.lost.is_set()


def own_lease(workspace_url):
    """The lease that a run of this process holds there; those of others may be just ending."""
    threads = [thread for thread in threading.enumerate() if thread.name == "lease"]
    leases = [thread._target.__self__ for thread in threads]
    [lease] = [lease for lease in leases if lease._workspace.url == workspace_url]
    assert isinstance(lease, Lease)
    return lease


def test_a_run_that_was_taken_over_stops(tmp_path):
    rehearsal = Rehearsal(tmp_path)
    rehearsal.write(made_up_texts(30))
    settings = rehearsal.settings()
    lost = []

    def take_over(progress):
        if not lost and progress.applied:
            lost.append(take_lease(workspace_of(settings), "rehearsal", "test", take_over=True))
            # As the heartbeat does every ten seconds.
            own_lease(workspace_of(settings).url)._beat()

    executor = InlineExecutor()
    with pytest.raises(ShardOwnedElsewhereError, match="took over"):
        ingest(settings, executor, RunOptions(on_progress=take_over))
    executor.close()
    assert lost
    report = ingest(settings, executor, RunOptions(take_over=True))
    executor.close()
    assert report.documents.read == 30
    assert report.problems() == []


def test_a_later_run_has_the_greater_id_whatever_its_clock_says():
    workspace = MemoryWorkspace()
    times = ["2031-05-05T12:00:00+00:00"] * 12 + ["2031-05-05T11:00:00+00:00"]
    runs = [start_run(workspace, "a", time, pipeline="ingest", version="v1") for time in times]
    assert runs == sorted(runs)
    assert len(set(runs)) == 13
    assert all(re.fullmatch(r"\d{8}T\d{6}Z", run) for run in runs)
    started = json.loads(workspace.read(f"indexes/a/runs/{runs[0]}/started.json"))["body"]
    assert (started["pipeline"], started["pid"]) == ("ingest", os.getpid())
