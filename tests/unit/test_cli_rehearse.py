"""Fakes from the command line: what cannot be served is said, the rest is served until it ends."""

import runpy
import socket
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from typer.testing import CliRunner

from embedmill.errors import TransientError
from embedmill.testing import openai_server
from embedmill.testing.fake_server import run_as_module
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.weaviate import WeaviateStore
from embedmill.weaviate_settings import WeaviateSettings
from pipelines.cli import app
from pipelines.cli_rehearse import FAKES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--provider", "nobody"], "openai, voyage, cohere"),
        (["--faults", "PLAN"], "explode"),
        (["--faults", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--faults", "FOLDER"], "FOLDER cannot be read: Is a directory"),
        (["--port", "TAKEN"], "port TAKEN cannot be served: Address already in use"),
        (["--provider", "qdrant", "--tokens-per-minute", "9"], "no limits by the minute"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(tmp_path, arguments, said):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: embeddings, do: explode}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        places = {"PLAN": str(plan), "FOLDER": str(tmp_path), "TAKEN": port}
        words = ["rehearse", *(places.get(one, one) for one in arguments)]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 4
    said = said.replace("FOLDER", str(tmp_path)).replace("TAKEN", port)
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("fake", FAKES)
def test_a_fake_that_is_run_as_a_module_says_the_same_and_ends_with_2(
    tmp_path, monkeypatch, capsys, fake
):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: nowhere, do: explode}\n")
    module = f"embedmill.testing.{fake}_server"
    monkeypatch.setattr(sys, "argv", [module, "--faults", str(plan)])
    # As python -m does, but for the start of a process.
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: the plan of faults makes no sense: {plan}: 0.at: ")


def test_why_a_port_cannot_be_served_comes_with_what_to_type(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            run_as_module(partial(openai_server.main, ["--port", str(port)]))
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"error: port {port} cannot be served: Address already in use\n"
        "  next: add --port 0 for any that is free\n"
    )


def test_a_fake_with_two_interfaces_names_both_and_answers_the_real_client(tmp_path):
    main = "from pipelines.cli import main; main()"
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: meta, do: rate-limit}\n")
    command = [sys.executable, "-c", main, "rehearse", "--provider", "weaviate", "--port", "0"]
    with subprocess.Popen(
        [*command, "--faults", str(plan)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as served:
        try:
            rest, grpc = served.stdout.readline().split()
            values = {"kind": "weaviate", "url": rest, "grpc_url": grpc}
            store = WeaviateStore(WeaviateSettings.model_validate(values))
            with pytest.raises(TransientError):
                store.collections()
            store.create_collection("docs-v1", CollectionSpec(4, "cosine", normalised=True))
            vectors = np.eye(4, dtype=np.float32)[:1]
            store.upsert("docs-v1", VectorBatch([UUID(int=1)], vectors, [{"text": "a"}]))
            assert store.count("docs-v1") == 1
            store.close()
        finally:
            served.terminate()
        assert served.wait(60) == 0


def test_the_first_line_is_the_base_url_and_the_bill_can_be_asked_for():
    main = "from pipelines.cli import main; main()"
    command = [sys.executable, "-c", main, "rehearse", "--provider", "voyage", "--port", "0"]
    command += ["--requests-per-minute", "60", "--tokens-per-minute", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as served:
        try:
            address = served.stdout.readline().strip()
            assert address.endswith("/v1")
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(address.removesuffix("/v1") + "/fake/bill", timeout=20) as bill:
                assert b'"texts": 0' in bill.read()
        finally:
            served.terminate()
        assert served.wait(60) == 0
