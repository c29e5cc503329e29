"""What scripts/submit says where there is no cluster to submit to, or no sense in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedmill.testing.kept_port import kept_port, port_of

ROOT = Path(__file__).parents[2]


def submit(*arguments, cwd=ROOT, **environment):
    """Run the script to its end; its status, and the lines that it said."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "submit_job.py", *arguments],
        env={**own, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_a_cluster_that_does_not_answer_is_named_in_two_lines():
    with kept_port() as nobody:
        address = f"http://127.0.0.1:{port_of(nobody)}"
        status, said = submit("--address", address, "versions")
    assert status == 4
    assert said == [
        f"error: Failed to connect to Ray at address: {address}.",
        "  next: see that the cluster runs, and name its dashboard: --address",
    ]


@pytest.mark.parametrize("address", ["ray://127.0.0.1:10001", "auto"])
def test_the_address_of_something_else_is_refused_before_anything_is_sent(address):
    status, said = submit("--address", address, "versions")
    assert status == 4
    assert said[0] == f"error: {address} is no address of a dashboard"


def test_the_address_that_is_typed_comes_before_the_variable():
    """Ray's own client has it the other way round: the job would run on another cluster."""
    with kept_port() as nobody, kept_port() as other:
        typed = f"127.0.0.1:{port_of(nobody)}"
        _, said = submit(
            "--address",
            typed,
            "versions",
            RAY_API_SERVER_ADDRESS=f"http://127.0.0.1:{port_of(other)}",
        )
    assert said[0] == f"error: Failed to connect to Ray at address: http://{typed}."


@pytest.mark.parametrize("typed", [["mine.yaml"], ["--config=mine.yaml"]])
def test_settings_that_the_job_would_not_find_are_named(tmp_path, typed):
    (tmp_path / "mine.yaml").touch()
    status, said = submit("versions", *typed, cwd=tmp_path)
    assert status == 4
    assert said[0] == f"error: mine.yaml is not below {ROOT}, which is all that the job has of " + (
        "this machine"
    )


def test_settings_that_the_job_has_under_another_name_are_called_by_that():
    status, said = submit("ingest", "folder.yaml", cwd=ROOT / "configs")
    assert status == 4
    assert said == [
        f"error: the job runs in the copy of {ROOT}, where there is no folder.yaml",
        "  next: name it as it is called from there: configs/folder.yaml",
    ]
