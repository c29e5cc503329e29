"""A run through embedding jobs whose workers are Ray's: it submits, and another one collects."""

import pytest
import yaml

pytest.importorskip("openai")
pytest.importorskip("msgspec")

from embedmill.canary import CANARY_TEXTS
from embedmill.settings_file import load_settings
from embedmill.testing.index_contents import contents_of
from embedmill.testing.openai_server import OpenAIServer, ServerOptions
from embedmill.testing.rehearsal import made_up_texts
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def test_one_run_on_ray_submits_and_the_next_one_collects(open_executor, rehearsal):
    texts = made_up_texts(60)
    rehearsal.write(texts)
    rehearsal.settings(shard_workers=1, embed_workers=1)
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
        settings = load_settings(rehearsal.config, [])
        assert whole_run(settings, open_executor(), wait_for_jobs=False).status == "waiting"
        report = whole_run(settings, open_executor())
        assert (report.status, report.executor) == ("succeeded", "ray")
        assert server.posts("/batches") == 1
        # Both runs have asked for the canary; nothing else was paid for twice.
        canary = [server.bill.times(text) for text in CANARY_TEXTS.values()]
        assert canary == [2] * len(CANARY_TEXTS)
        assert server.bill.texts == report.chunks.embedded + sum(canary)
        assert server.bill.more_than_once() == len(CANARY_TEXTS)
    assert contents_of(settings).documents() == set(texts)


def whole_run(settings, executor, **options):
    """A whole run, whose workers end with it."""
    report = ingest(settings, executor, RunOptions(**options))
    executor.close()
    return report
