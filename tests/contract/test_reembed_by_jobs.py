"""A model swap whose new vectors come from embedding jobs, through the real client."""

import json

import pytest

pytest.importorskip("openai")
pytest.importorskip("msgspec")

from embedmill.assembly import workspace_of
from embedmill.canary import CANARY_TEXTS
from embedmill.executor import InlineExecutor
from embedmill.manifest import Manifest
from embedmill.provenance import Provenance
from embedmill.testing.openai_server import OpenAIServer, ServerOptions
from embedmill.testing.rehearsal import Rehearsal, made_up_texts
from pipelines.ingest import ingest
from pipelines.publish import publish
from pipelines.reembed import reembed
from pipelines.run_options import RunOptions


def inline(pipeline, settings, *more, **how):
    executor = InlineExecutor()
    try:
        return pipeline(settings, executor, *more, **how)
    finally:
        executor.close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("FAKE_OPENAI_KEY", "sk-fake")
    with OpenAIServer(options=ServerOptions(polls_per_status=1)) as server:
        yield server


def with_embedder(settings, server, **more):
    embedder = {
        "kind": "openai",
        "api_key": "${FAKE_OPENAI_KEY}",
        "base_url": server.base_url,
        "tokenizer": "estimate",
        "jobs": {"poll_seconds": 0.05, "poll_most_seconds": 0.1, "canaries": 0},
        **more,
    }
    values = {**json.loads(settings.model_dump_json()), "embedder": embedder}
    return type(settings).model_validate_json(json.dumps(values))


def test_a_build_submits_a_sync_goes_on_and_the_next_build_collects(tmp_path, server):
    rehearsal = Rehearsal(tmp_path)
    texts = made_up_texts(12)
    rehearsal.write(texts)
    old = with_embedder(rehearsal.settings(), server, dimensions=8, mode="realtime")
    new = with_embedder(old, server, dimensions=16, mode="batch")
    inline(ingest, old)
    waiting = inline(reembed, new, RunOptions(wait_for_jobs=False))
    assert not waiting.from_source
    assert (waiting.report.status, waiting.version.state) == ("waiting", "building")
    rehearsal.write({**texts, "late": "a text that came while the job was under way"})
    assert inline(ingest, old).status == "succeeded"
    built = inline(reembed, new, RunOptions())
    assert built.version.state == "ready"
    assert sum(job["rows"] for job in built.version.jobs) == built.report.live_records
    # Once for each of the two models; what is asked at the beginning of every run besides.
    stored = Provenance(workspace_of(new), new.index, built.version)
    assert server.bill.times("a text that came while the job was under way") == 2
    [origin] = stored.of("late")
    assert origin.provider_job in {job["provider_job"] for job in built.version.jobs}
    done = inline(publish, new, RunOptions(), force=True)
    assert done.switch.after.number == 2
    assert Manifest(workspace_of(new), new.index).read().published.jobs == built.version.jobs
    assert len(CANARY_TEXTS) < server.bill.texts
