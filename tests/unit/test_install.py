"""scripts/install with an interpreter that only says what it was asked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_INTERPRETER = """\
#!/usr/bin/env bash
echo "$*" >>"{asked}"
if [[ "$*" == *compileall* ]]; then
  {compileall}
fi
"""


def install(folder: Path, compileall: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a folder of its own; ``compileall`` is what compiling does."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install", folder / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        (folder / name).touch()
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_INTERPRETER.format(asked=folder / "asked", compileall=compileall))
    python.chmod(0o755)
    return subprocess.run(
        [folder / "scripts" / "install", "cpu"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
        # Whoever starts the tests in the background has Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "EMBEDMILL_TORCH_INDEX": ""},
    )


def test_what_cannot_be_compiled_is_let_be(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    assert install(folder, "exit 1").returncode == 0
    asked = (folder / "asked").read_text().splitlines()
    assert [line for line in asked if "-m compileall" in line] == asked[-1:]
    assert (folder / ".venv" / ".installed-cpu").exists()


@pytest.mark.parametrize("ends", ["exit 1", "exit 0"])
def test_an_install_that_is_interrupted_while_it_compiles_ends_and_is_done_again(
    tmp_path: Path, ends: str
) -> None:
    """As at a Ctrl-C, which compileall takes for a file that cannot be compiled."""
    done = install(tmp_path, f"trap '' INT; kill -INT 0; {ends}")
    assert done.returncode == 128 + signal.SIGINT
    assert not (tmp_path / ".venv" / ".installed-cpu").exists()
