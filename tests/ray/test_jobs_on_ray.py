"""A run through embedding jobs whose workers are Ray's: it submits, and another one collects."""

import json
import os
import subprocess
import sys

import pytest
import yaml

pytest.importorskip("openai")
pytest.importorskip("msgspec")

from embedmill.canary import CANARY_TEXTS
from embedmill.testing.index_contents import contents_of
from embedmill.testing.openai_server import OpenAIServer, ServerOptions
from embedmill.testing.rehearsal import made_up_texts

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def command(config, *arguments):
    """The command line in a process of its own, with a Ray of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "ingest", str(config), "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "FAKE_OPENAI_KEY": "sk-fake", "NO_PROXY": "127.0.0.1"},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_one_run_on_ray_submits_and_the_next_one_collects(rehearsal, monkeypatch):
    monkeypatch.setenv("FAKE_OPENAI_KEY", "sk-fake")
    texts = made_up_texts(60)
    rehearsal.write(texts)
    rehearsal.settings()
    values = yaml.safe_load(rehearsal.config.read_text())
    with OpenAIServer(options=ServerOptions(polls_per_status=1)) as server:
        values["embedder"] = {
            "kind": "openai",
            "dimensions": 16,
            "api_key": "${FAKE_OPENAI_KEY}",
            "base_url": server.base_url,
            "tokenizer": "estimate",
            "mode": "batch",
            "jobs": {"poll_seconds": 0.2, "poll_most_seconds": 0.5, "canaries": 0},
        }
        rehearsal.config.write_text(yaml.safe_dump(values))
        status, report = command(rehearsal.config, "--no-wait")
        assert (status, report["status"]) == (8, "waiting")
        status, report = command(rehearsal.config)
        assert (status, report["status"]) == (0, "succeeded")
        assert report["executor"] == "ray"
        assert server.posts("/batches") == 1
        # Both runs have asked for the canary; nothing else was paid for twice.
        canary = [server.bill.times(text) for text in CANARY_TEXTS.values()]
        assert canary == [2] * len(CANARY_TEXTS)
        assert server.bill.texts == report["chunks"]["embedded"] + sum(canary)
        assert server.bill.more_than_once() == len(CANARY_TEXTS)
    from embedmill.settings_file import load_settings

    assert contents_of(load_settings(rehearsal.config, [])).documents() == set(texts)
