"""The workspace in a bucket: the same promises, with conditional puts instead of links."""

import itertools
import threading

import pytest
from s3_server import s3_server
from scenario import CrashIndex
from test_crash_points import STEPS, problems_at

from embedmill.errors import AlreadyExistsError, IndexLockedError, StopRunError
from embedmill.lease import take_lease
from embedmill.workspace import ObjectWorkspace, create_once, open_workspace
from embedmill.workspace_settings import WorkspaceSettings

BUCKET = "documents"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    with s3_server() as server:
        server.client.create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture
def bucket(server):
    """Makes empty workspaces in a bucket."""

    def fresh(prefix=None):
        prefix = prefix or f"workspace {next(_numbers)}"
        return open_workspace(WorkspaceSettings(url=f"s3://{BUCKET}/{prefix}", **server.access))

    return fresh


@pytest.mark.parametrize(("step", "every"), [("sync", 12), ("compaction", 20)])
def test_a_run_killed_at_an_effect_ends_as_if_nothing_had_happened(tmp_path, bucket, step, every):
    def prepare(index):
        """In memory; the run that is killed, and the one that follows, find it in a bucket."""
        run = STEPS[step](index)
        index.move(bucket)
        return run

    index = CrashIndex(tmp_path)
    assert problems_at(index, prepare, "after", every=every) == []
    assert isinstance(index.workspace, ObjectWorkspace)


def test_a_name_is_taken_once(bucket):
    workspace = bucket()
    workspace.create("indexes/a/x", b"first")
    with pytest.raises(AlreadyExistsError):
        workspace.create("indexes/a/x", b"second")
    assert workspace.read("indexes/a/x") == b"first"
    assert create_once(workspace, "indexes/a/x", b"first")
    assert not create_once(workspace, "indexes/a/x", b"second")
    workspace.replace("indexes/a/x", b"third")
    assert workspace.read("indexes/a/x") == b"third"
    workspace.delete(["indexes/a/x", "indexes/a/never was"])
    assert workspace.read("indexes/a/x") is None
    assert list(workspace.list("indexes")) == []


def at_once(count, work):
    """Do something in threads that start together; what they return or raise."""
    barrier, results = threading.Barrier(count), []

    def one(number):
        barrier.wait(10)
        try:
            results.append(work(number))
        except (AlreadyExistsError, IndexLockedError) as error:
            results.append(error.code)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_of_writers_at_once_one_wins(bucket):
    workspaces = [bucket("shared") for _ in range(4)]
    for attempt in range(10):
        path = f"indexes/a/{attempt}"

        def put(number, path=path):
            workspaces[number].create(path, f"{number}".encode())
            return number

        results = at_once(4, put)
        winners = [result for result in results if isinstance(result, int)]
        assert sorted(map(str, results))[1:] == ["already-exists"] * 3
        assert workspaces[0].read(path) == f"{winners[0]}".encode()


class LooksWithOthers:
    """A workspace whose first listing ends when those of all others have been made."""

    def __init__(self, real, met):
        self._real, self._met, self._first = real, met, True

    def __getattr__(self, name):
        return getattr(self._real, name)

    def list(self, prefix):
        found = list(self._real.list(prefix))
        if self._first:
            self._first = False
            self._met.wait(10)
        return iter(found)


def test_of_runs_that_take_the_lease_at_once_one_gets_it(bucket):
    met = threading.Barrier(4)
    workspaces = [LooksWithOthers(bucket("leased"), met) for _ in range(4)]
    results = at_once(4, lambda number: take_lease(workspaces[number], "a", "ingest").number)
    assert sorted(map(str, results)) == ["1", "locked", "locked", "locked"]


def test_a_bucket_that_is_not_there_is_no_empty_workspace(server):
    workspace = open_workspace(WorkspaceSettings(url="s3://no-such-bucket/x", **server.access))
    for call in (
        lambda: list(workspace.list("indexes")),
        lambda: workspace.read("indexes/x"),
        lambda: workspace.create("indexes/x", b""),
    ):
        with pytest.raises(StopRunError, match="no such bucket"):
            call()
