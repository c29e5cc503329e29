import os
import signal
import subprocess
import sys

import pytest

from embedmill.made_once import cache_folder, made_once

WORKER = """
import sys, time
from pathlib import Path
from embedmill.made_once import made_once

root, mode = Path(sys.argv[1]), sys.argv[2]

def make(folder):
    (folder / "half").write_text("half")
    with (root / "makers").open("a") as log:
        log.write("x")
    if mode == "hang":
        print("hanging", flush=True)
        time.sleep(60)
    (folder / "whole").write_text("whole")

print(sorted(path.name for path in made_once("thing", make, root / "cache").iterdir()))
"""


def start(root, mode="make"):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(root), mode], stdout=subprocess.PIPE, text=True
    )


def test_of_several_processes_one_makes_it(tmp_path):
    workers = [start(tmp_path) for _ in range(3)]
    assert {worker.communicate(timeout=60)[0] for worker in workers} == {"['half', 'whole']\n"}
    assert (tmp_path / "makers").read_text() == "x"


def test_what_a_killed_process_left_does_not_count(tmp_path):
    first = start(tmp_path, "hang")
    assert first.stdout.readline() == "hanging\n"
    second = start(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    assert second.communicate(timeout=60)[0] == "['half', 'whole']\n"
    assert (tmp_path / "makers").read_text() == "xx"


def test_a_maker_that_fails_leaves_nothing(tmp_path):
    def fail(folder):
        (folder / "half").write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made_once("thing", fail, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thing.lock"]


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_one(tmp_path, caplog, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = made_once("thing", lambda folder: None, tmp_path / "file" / "cache")
    assert made == tmp_path / f"embedmill-cache-{os.getuid()}" / "thing"
    assert "set EMBEDMILL_CACHE" in caplog.text


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("EMBEDMILL_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("EMBEDMILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "embedmill"
