"""Adapters of another package, installed beside embedmill: tests/plugins is such a package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

# A whole suite of tests is one of the tests.
pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "plugins")]),
}


def run(*command):
    return subprocess.run(
        [sys.executable, *command],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


# Plugins are looked for once in a process, where it finds packages: one that has this one has to be
# another than ours. It does all the commands of a test, since one takes a second to start.
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from pipelines.cli import app

for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def embedmill(*commands):
    """What became of each."""
    done = run("-c", COMMANDS, json.dumps([list(map(str, command)) for command in commands]))
    assert done.returncode == 0, done.stderr
    return [Done(*json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def config(tmp_path):
    (tmp_path / "docs").mkdir()
    for number in range(12):
        (tmp_path / "docs" / f"{number}.txt").write_text(f"The text about topic {number}. " * 20)
    settings = {
        "index": "acme",
        "workspace": str(tmp_path / "workspace"),
        "source": {"kind": "files", "path": str(tmp_path / "docs")},
        "chunker": {"kind": "text", "max_tokens": 20},
        "embedder": {"kind": "acme", "window": 24},
        "store": {"kind": "acme_shelf", "path": str(tmp_path / "shelf")},
        "shard_count": 2,
    }
    path = tmp_path / "acme.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_its_kinds_are_listed_with_their_keys_and_what_cannot_be_used_is_said():
    listed, keys, explained = embedmill(["kinds"], ["kinds", "acme"], ["kinds", "--help"])
    assert listed.exit_code == 0, listed.stderr
    ours = [line for line in listed.stdout.splitlines() if "[acme-embedmill 1.0]" in line]
    assert [line.split()[:2] for line in ours] == [["embedder:", "acme"], ["store:", "acme_shelf"]]
    assert "acme_broken = acme_embedmill_that_is_not_there" in listed.stderr
    assert "'hashing' is one of embedmill's own" in listed.stderr
    assert "window (default 64): Words that are read." in keys.stdout
    said = " ".join(explained.stdout.replace("│", " ").split())
    assert "acme (embedder), acme_shelf (store)" in said


def test_its_settings_are_checked_like_our_own(config):
    ingest = ["ingest", config, "--local", "--set"]
    wrong, other = embedmill(
        [*ingest, "embedder.windw=3", "--set", "store.path=7"], [*ingest, "embedder={kind: acm}"]
    )
    assert wrong.exit_code == 2
    assert "embedder.windw: unknown key; did you mean `window`?" in wrong.stderr
    assert "did you mean acme?" in other.stderr


def test_a_run_with_both_ends_well_and_can_be_searched(config):
    done, found = embedmill(
        ["ingest", config, "--local", "--json"], ["search", "topic 7", "--config", config]
    )
    assert done.exit_code == 0, done.stderr
    assert found.exit_code == 0, found.stderr
    assert ".txt" in found.stdout


def test_the_contract_suites_run_over_it():
    suite = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs"]
    done = run(*suite, "embedmill.testing.plugin_suites")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    # The package of this test has two entry points that cannot be used. How much of an assertion
    # stands behind the name depends on the width of the terminal, and on whether CI runs it.
    assert [line.rpartition("::")[2].partition(" - ")[0] for line in failed] == [
        "test_every_installed_plugin_can_be_used"
    ], done.stdout
