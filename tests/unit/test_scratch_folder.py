"""Scratch folders: gone when their process is, and not before."""

import subprocess
import sys
import tempfile

import pytest

from embedmill.scratch_folder import ScratchFolder


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_removed_with_all_that_is_in_it(root):
    folder = ScratchFolder("a-")
    (folder.path / "large").write_bytes(b"x")
    folder.close()
    folder.close()
    assert list(root.iterdir()) == []


def test_folders_of_processes_that_live_are_let_be(root):
    first, second = ScratchFolder("a-"), ScratchFolder("a-")
    assert sorted(root.iterdir()) == sorted([first.path, second.path])
    first.close()
    second.close()


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next(root):
    code = (
        "import os, tempfile; tempfile.tempdir = os.environ['ROOT']\n"
        "from embedmill.scratch_folder import ScratchFolder\n"
        "folder = ScratchFolder('a-'); (folder.path / 'large').write_bytes(b'x'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, env={"ROOT": str(root)})
    assert len(list(root.iterdir())) == 1
    (root / "b-other").mkdir()
    (root / "a-file").write_text("no folder")
    folder = ScratchFolder("a-")
    assert sorted(path.name for path in root.iterdir()) == sorted(
        ["b-other", "a-file", folder.path.name]
    )
    folder.close()
