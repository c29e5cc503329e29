"""The corpus of the quickstart: complete, the same each time, there or not there."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "render_python_docs.py"


def render(folder, seed="0"):
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_renders_the_standard_library_and_nothing_else(tmp_path):
    done = render(tmp_path / "docs")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    files = {path.name: path.read_text() for path in (tmp_path / "docs").iterdir()}
    assert len(files) >= 200
    assert f"{len(files)} files" in done.stdout
    assert 500_000 < sum(len(text) for text in files.values()) < 1_600_000
    assert files["argparse.md"].startswith("# argparse — Command-line parsing library\n")
    assert "## argparse.ArgumentParser\n" in files["argparse.md"]
    for name in ("decimal", "os.path", "xml.etree.ElementTree", "logging.handlers"):
        assert files[f"{name}.md"].startswith(f"# {name}")
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


def test_the_same_interpreter_gives_the_same_bytes(tmp_path):
    for seed in ("1", "2"):
        assert render(tmp_path / seed, seed).returncode == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()} for seed in "12"
    )
    assert one == two


def test_it_leaves_a_folder_alone_that_holds_something(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    done = render(tmp_path)
    assert done.returncode != 0
    assert "exists already" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
