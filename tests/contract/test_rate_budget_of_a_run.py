"""A whole run under a rate budget: what the report says, and a run that has spent its money."""

import pytest

from embedmill.errors import StopRunError
from embedmill.executor import InlineExecutor
from embedmill.openai_settings import OpenAIEmbedderSettings
from embedmill.run_report import read_reports
from embedmill.testing.index_contents import contents_of
from embedmill.testing.openai_server import Fault
from embedmill.testing.rehearsal import Rehearsal, made_up_texts
from embedmill.workspace import open_workspace
from pipelines.ingest import ingest

DOLLARS_PER_MILLION = 1000.0


class Run:
    def __init__(self, folder, rig, texts):
        self.rehearsal = Rehearsal(folder)
        self.rehearsal.write(texts)
        self.rig = rig

    def settings(self, mode="realtime", **budget):
        embedder = self.rig.settings(
            mode=mode,
            rate_budget={"dollars_per_million_tokens": DOLLARS_PER_MILLION, **budget},
        )
        assert isinstance(embedder, OpenAIEmbedderSettings)
        settings = self.rehearsal.settings(segment_chunks=20)
        return settings.model_copy(update={"embedder": embedder})

    def ingest(self, **more):
        executor = InlineExecutor()
        try:
            return ingest(self.settings(**more), executor)
        finally:
            executor.close()

    def last_report(self):
        settings = self.settings()
        return next(read_reports(open_workspace(settings.workspace), settings.index))[1]


def test_the_report_tells_what_was_asked_of_the_provider(rig, tmp_path):
    rig = rig(Fault(at="embeddings", do="rate-limit", call=2, value="0.2"))
    run = Run(tmp_path, rig, made_up_texts(50))
    report = run.ingest(concurrent_requests=1)
    used = report.rate
    assert report.status == "succeeded"
    assert used.requests == rig.server.posts("/embeddings")
    assert used.throttled == 1
    assert used.waited_s >= 0.2
    assert used.tokens == rig.server.bill.tokens
    # The version's known texts are asked for as well.
    assert used.tokens >= report.chunks.tokens
    assert used.dollars == pytest.approx(used.tokens * DOLLARS_PER_MILLION / 1e6)
    assert run.last_report() == report


def test_a_run_that_has_spent_its_money_stops_and_the_next_one_goes_on(rig, tmp_path):
    rig, texts = rig(), made_up_texts(100)
    run = Run(tmp_path, rig, texts)
    with pytest.raises(StopRunError, match="dollars") as stopped:
        run.ingest(dollars=3.0)
    assert stopped.value.code == "dollars"
    failed = run.last_report()
    assert failed.status == "failed"
    assert 0 < failed.rate.dollars <= 3.0
    assert failed.rate.tokens == rig.server.bill.tokens
    report = run.ingest(dollars=100.0)
    assert report.status == "succeeded"
    assert failed.chunks.embedded + report.chunks.embedded == report.live_records
    assert contents_of(run.settings()).documents() == set(texts)


def test_what_goes_without_a_job_keeps_to_the_budget_as_well(rig, tmp_path):
    rig = rig(polls_per_status=0)
    run = Run(tmp_path, rig, made_up_texts(30))
    report = run.ingest(mode="auto")
    # Fewer rows than are worth a job, and the known texts.
    assert rig.server.posts("/batches") == 0
    assert report.rate.tokens == rig.server.bill.tokens
    assert report.rate.requests == rig.server.posts("/embeddings") > 0
