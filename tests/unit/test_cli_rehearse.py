"""Fakes from the command line: what cannot be served is said, the rest is served until it ends."""

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--provider", "nobody"], "openai, voyage, cohere"),
        (["--faults", "PLAN"], "explode"),
        (["--faults", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--port", "TAKEN"], "--port 0"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(tmp_path, arguments, said):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: embeddings, do: explode}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {"PLAN": str(plan), "TAKEN": str(taken.getsockname()[1])}
        words = ["rehearse", *(places.get(one, one) for one in arguments)]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 4
    assert said in " ".join(done.stderr.split())


def test_the_first_line_is_the_base_url_and_the_bill_can_be_asked_for():
    main = "from pipelines.cli import main; main()"
    command = [sys.executable, "-c", main, "rehearse", "--provider", "voyage", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as served:
        try:
            address = served.stdout.readline().strip()
            assert address.endswith("/v1")
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(address.removesuffix("/v1") + "/fake/bill", timeout=5) as bill:
                assert b'"texts": 0' in bill.read()
        finally:
            served.terminate()
        assert served.wait(20) == 0
