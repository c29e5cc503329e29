"""Workspaces: a file is there whole, or not at all, and stays as it is. One body for each kind."""

import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from s3_server import s3_server

from embedmill.errors import (
    AlreadyExistsError,
    DamagedFileError,
    SettingsError,
    StopRunError,
    TransientError,
)
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.workspace import STAGING, LocalWorkspace, create_once, open_workspace, require
from embedmill.workspace_settings import WorkspaceSettings

BIG = b"0123456789abcdef" * 2**16


@pytest.fixture(scope="module")
def bucket_server():
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(bucket_server, tmp_path):
    """Settings of a workspace in a fresh bucket, under a prefix."""
    name = re.sub("[^a-z0-9]+", "-", tmp_path.name.lower())[-50:].strip("-")
    bucket_server.client.create_bucket(Bucket=name)
    return WorkspaceSettings(url=f"s3://{name}/some/prefix", **bucket_server.access)


@pytest.fixture(params=["local", "bucket", "memory"])
def workspace(request, tmp_path):
    if request.param == "local":
        return LocalWorkspace(tmp_path / "a folder 100% é#")
    if request.param == "memory":
        return MemoryWorkspace()
    return open_workspace(request.getfixturevalue("bucket"))


def paths_of(workspace, prefix="indexes"):
    return sorted(entry.path for entry in workspace.list(prefix))


def test_what_is_there_is_told_without_reading_it(workspace, monkeypatch):
    workspace.create("indexes/a/one.json", BIG)
    workspace.create("indexes/a/empty", b"")
    monkeypatch.setattr(type(workspace), "read", None)
    names = "a/one.json", "a/empty", "a/two.json", "b/one.json", "a/one.jso"
    assert [workspace.exists(f"indexes/{n}") for n in names] == [True, True, False, False, False]


def test_what_cannot_be_looked_at_is_neither_there_nor_not(tmp_path, bucket):
    local = LocalWorkspace(tmp_path / "ws")
    local.create("indexes/a", b"1")
    with pytest.raises(StopRunError, match="cannot be read"):
        local.exists("indexes/a/b")
    away = bucket.model_copy(update={"secret_key": None, "access_key": None, "allow_http": False})
    with pytest.raises((StopRunError, TransientError)):
        open_workspace(away).exists("indexes/a")


def test_what_was_put_is_read_and_listed_with_its_size(workspace):
    workspace.create("indexes/a/one.json", b"12345")
    workspace.create("indexes/a/b/c/two.json", BIG)
    assert workspace.read("indexes/a/one.json") == b"12345"
    assert workspace.read("indexes/a/b/c/two.json") == BIG
    assert {e.path: e.size for e in workspace.list("indexes/a")} == {
        "indexes/a/one.json": 5,
        "indexes/a/b/c/two.json": len(BIG),
    }


def test_a_name_that_is_taken_is_refused_and_its_file_untouched(workspace):
    workspace.create("indexes/x", b"first")
    with pytest.raises(AlreadyExistsError, match="indexes/x exists already"):
        workspace.create("indexes/x", b"second")
    assert workspace.read("indexes/x") == b"first"
    assert paths_of(workspace) == ["indexes/x"]


def test_of_many_who_want_a_name_at_once_one_gets_it(workspace):
    won = []

    def put(number):
        try:
            workspace.create("indexes/race", str(number).encode() * 1000)
        except AlreadyExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert workspace.read("indexes/race") == str(won[0]).encode() * 1000


def test_what_is_not_there_is_none_and_an_absent_folder_is_empty(workspace):
    assert workspace.read("indexes/none") is None
    assert paths_of(workspace, "indexes/none") == []


def test_a_folder_is_listed_without_its_namesakes(workspace):
    for path in ("indexes/a/x", "indexes/ab/x", "indexes/a.b/x"):
        workspace.create(path, b"1")
    assert paths_of(workspace, "indexes/a") == ["indexes/a/x"]
    assert paths_of(workspace, "indexes/a/") == ["indexes/a/x"]


@pytest.mark.parametrize(
    "name",
    ["a b", "100%.json", "a%20b", "a+b", "a~b", "a,b;c=d", "A", "a..b", ".hidden", "x" * 200],
)
def test_odd_names_come_back_as_they_are(workspace, name):
    workspace.create(f"indexes/{name}", name.encode())
    assert paths_of(workspace) == [f"indexes/{name}"]
    assert workspace.read(f"indexes/{name}") == name.encode()
    workspace.delete([f"indexes/{name}"])
    assert paths_of(workspace) == []


def test_deleting_takes_what_is_there_and_minds_nothing_else(workspace):
    workspace.create("indexes/a", b"1")
    workspace.create("indexes/b", b"1")
    workspace.delete(["indexes/a", "indexes/never"])
    assert paths_of(workspace) == ["indexes/b"]
    # The name is free again.
    workspace.create("indexes/a", b"2")
    assert workspace.read("indexes/a") == b"2"


def test_replacing_puts_a_file_whatever_was_there(workspace):
    workspace.replace("indexes/beat", b"1")
    workspace.replace("indexes/beat", b"2")
    assert workspace.read("indexes/beat") == b"2"


def test_putting_the_same_bytes_once_more_counts_as_done(workspace):
    assert create_once(workspace, "indexes/a", b"same")
    assert create_once(workspace, "indexes/a", b"same")
    assert not create_once(workspace, "indexes/a", b"other")
    assert workspace.read("indexes/a") == b"same"


def test_a_committed_file_that_is_missing_or_empty_is_damage(workspace):
    with pytest.raises(DamagedFileError, match=r"indexes/a was committed and is missing"):
        require(workspace, "indexes/a")
    workspace.create("indexes/a", b"")
    with pytest.raises(DamagedFileError, match=r"indexes/a was committed and is empty"):
        require(workspace, "indexes/a")


def test_two_workspaces_of_one_bucket_see_the_same_files(bucket):
    open_workspace(bucket).create("indexes/a", b"1")
    assert open_workspace(bucket).read("indexes/a") == b"1"
    elsewhere = bucket.model_copy(update={"url": bucket.url + "-2"})
    assert open_workspace(elsewhere).read("indexes/a") is None


def test_a_bucket_that_does_not_answer_is_no_bucket_without_files(bucket, monkeypatch):
    gone = bucket.model_copy(update={"endpoint": "http://127.0.0.1:9"})
    workspace = open_workspace(gone)
    monkeypatch.setattr(workspace, "_store", quick_to_give_up(workspace))
    for call in (
        lambda: workspace.read("indexes/a"),
        lambda: list(workspace.list("indexes")),
        lambda: workspace.create("indexes/a", b"1"),
    ):
        with pytest.raises(TransientError, match="s3://"):
            call()


def quick_to_give_up(workspace):
    from datetime import timedelta

    from obstore.store import S3Store

    return S3Store.from_url(
        workspace.url,
        config={
            "endpoint": "http://127.0.0.1:9",
            "region": "us-east-1",
            "access_key_id": "made-up",
            "secret_access_key": "made-up",
        },
        client_options={"allow_http": True},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
    )


@pytest.mark.parametrize("url", ["ftp://host/x", "s4://bucket", "nfs://a/b"])
def test_an_address_of_an_unknown_kind_is_refused_with_those_that_are_known(url):
    with pytest.raises(SettingsError, match=re.escape(url)) as caught:
        open_workspace(WorkspaceSettings(url=url))
    assert "s3://" in caught.value.hint


def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_put_ends(
    tmp_path, monkeypatch
):
    """A loss of power takes what was not synced, and no test can cut the power."""
    workspace, done = LocalWorkspace(tmp_path), []
    sync, link, replace = os.fsync, os.link, Path.replace

    def synced(descriptor):
        sync(descriptor)
        done.append(("synced", os.fstat(descriptor).st_ino))

    def linked(source, target):
        link(source, target)
        done.append(("named", target.stat().st_ino))

    def replaced(source, target):
        replace(source, target)
        done.append(("named", target.stat().st_ino))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(Path, "replace", replaced)
    workspace.create("indexes/a/1", b"1")
    indexes = tmp_path / "indexes"
    folder, file = indexes / "a", indexes / "a" / "1"
    put = [("synced", file), ("named", file), ("synced", folder)]
    # A new folder is put into the one above it.
    above = [("synced", tmp_path), ("synced", indexes)]
    assert done == [(what, place.stat().st_ino) for what, place in (*above, *put)]
    done.clear()
    workspace.replace("indexes/a/1", b"2")
    assert done == [(what, place.stat().st_ino) for what, place in put]


def test_a_file_address_is_a_folder(tmp_path):
    workspace = open_workspace(WorkspaceSettings(url=f"file://{tmp_path}/a%20b"))
    workspace.create("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"


def test_what_is_unfinished_is_not_listed_and_can_be_swept(tmp_path):
    workspace = LocalWorkspace(tmp_path)
    (tmp_path / STAGING / "tmpabc").write_bytes(b"half a fi")
    workspace.create("indexes/a", b"1")
    assert paths_of(workspace) == ["indexes/a"]
    assert workspace.sweep() == 0
    assert workspace.sweep(older_than_s=0.0) == 1
    assert list((tmp_path / STAGING).iterdir()) == []


def test_no_moment_shows_a_part_of_a_file(tmp_path):
    """A reader that looks all the time finds nothing, or the whole file."""
    workspace = LocalWorkspace(tmp_path)
    seen, done = set(), threading.Event()

    def look():
        while not done.is_set():
            for number in range(20):
                seen.add(len(workspace.read(f"indexes/{number}") or b""))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(20):
        workspace.create(f"indexes/{number}", BIG)
    done.set()
    reader.join()
    assert seen <= {0, len(BIG)}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o644)])
def test_the_umask_says_who_may_read_what_is_put(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        workspace = LocalWorkspace(tmp_path / "w")
        workspace.create("a/created", b"text of a document")
        workspace.replace("a/replaced", b"text of a document")
    finally:
        os.umask(before)
    for name in ("created", "replaced"):
        assert (tmp_path / "w" / "a" / name).stat().st_mode & 0o777 == mode


def test_a_folder_that_disappeared_meanwhile_is_made_again(tmp_path):
    workspace = LocalWorkspace(tmp_path)
    workspace.create("indexes/a/1", b"1")
    workspace.delete(["indexes/a/1"])
    (tmp_path / "indexes" / "a").rmdir()
    workspace.create("indexes/a/2", b"2")
    assert workspace.read("indexes/a/2") == b"2"


def test_a_file_where_a_folder_should_be_is_no_name_that_is_taken(tmp_path):
    (tmp_path / "indexes").write_bytes(b"what is this doing here")
    workspace = LocalWorkspace(tmp_path)
    with pytest.raises(StopRunError, match="cannot be written"):
        workspace.create("indexes/a", b"1")


@pytest.fixture
def tiny_disk(tmp_path):
    """A disk of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_leaves_no_trace_of_the_file(tiny_disk):
    workspace = LocalWorkspace(tiny_disk)
    workspace.create("indexes/small", b"1")
    with pytest.raises(StopRunError, match="No space left on device") as caught:
        workspace.create("indexes/big", b"x" * 2**21)
    assert caught.value.code == "no-space"
    assert "make room" in caught.value.hint
    assert paths_of(workspace) == ["indexes/small"]
    assert list((tiny_disk / STAGING).iterdir()) == []
    # There is room for what fits.
    workspace.create("indexes/next", b"1")


def test_a_read_only_disk_stops_the_run(tiny_disk):
    workspace = LocalWorkspace(tiny_disk)
    workspace.create("indexes/a", b"1")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    for put in (workspace.create, workspace.replace):
        with pytest.raises(StopRunError, match="Read-only file system") as caught:
            put("indexes/b", b"1")
        assert caught.value.code == "no-write"
    with pytest.raises(StopRunError, match="Read-only file system"):
        workspace.delete(["indexes/a"])
    assert workspace.read("indexes/a") == b"1"


def test_a_folder_that_takes_no_hard_link_stops_the_run_with_the_way_out(tmp_path, tiny_disk):
    workspace = LocalWorkspace(tmp_path)
    with pytest.raises(StopRunError, match=r"hard link from .*is refused") as caught:
        workspace.create(f"{tiny_disk.name}/a", b"1")
    assert caught.value.code == "no-link"
    assert "on one file system" in caught.value.hint
    assert list((tmp_path / STAGING).iterdir()) == []
    assert list(tiny_disk.iterdir()) == []


def test_a_workspace_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StopRunError, match="cannot be written"):
        LocalWorkspace(tmp_path / "file" / "workspace")


def test_a_limit_on_file_sizes_stops_the_run_and_leaves_nothing_half_written(tmp_path):
    script = (
        "import sys, signal\n"
        "from pathlib import Path\n"
        "from embedmill.errors import StopRunError\n"
        "from embedmill.workspace import LocalWorkspace\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n"
        "    LocalWorkspace(Path(sys.argv[1])).create('indexes/a', b'x' * 100_000)\n"
        "except StopRunError as error:\n"
        "    print(error.code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )
    assert done.stdout.startswith("no-write ")
    assert "File too large" in done.stdout
    assert paths_of(LocalWorkspace(tmp_path)) == []
    assert list((tmp_path / STAGING).iterdir()) == []
