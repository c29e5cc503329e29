"""Adapters of another package, installed beside embedmill: tests/plugins is such a package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


def embedmill(*arguments):
    return run("-c", "from pipelines.cli import main; main()", *arguments)


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
    listed = embedmill("kinds")
    assert listed.returncode == 0, listed.stderr
    ours = [line for line in listed.stdout.splitlines() if "[acme-embedmill 1.0]" in line]
    assert [line.split()[:2] for line in ours] == [["embedder:", "acme"], ["store:", "acme_shelf"]]
    assert "acme_broken = acme_embedmill_that_is_not_there" in listed.stderr
    assert "'hashing' is one of embedmill's own" in listed.stderr
    keys = embedmill("kinds", "acme")
    assert "window (default 64): Words that are read." in keys.stdout
    assert "acme (embedder), acme_shelf (store)" in " ".join(
        embedmill("kinds", "--help").stdout.replace("│", " ").split()
    )


def test_its_settings_are_checked_like_our_own(config):
    wrong = embedmill(
        "ingest", str(config), "--local", "--set", "embedder.windw=3", "--set", "store.path=7"
    )
    assert wrong.returncode == 2
    assert "embedder.windw: unknown key; did you mean `window`?" in wrong.stderr
    other = embedmill("ingest", str(config), "--local", "--set", "embedder={kind: acm}")
    assert "did you mean acme?" in other.stderr


def test_a_run_with_both_ends_well_and_can_be_searched(config):
    done = embedmill("ingest", str(config), "--local", "--json")
    assert done.returncode == 0, done.stderr
    found = embedmill("search", "topic 7", "--config", str(config))
    assert found.returncode == 0, found.stderr
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
