"""Real workers that run several calls at a time: who waits for whom, and what a death costs."""

import os
import threading
import time

import pytest
import yaml

pytest.importorskip("openai")
pytest.importorskip("msgspec")

from embedmill.errors import WorkerDiedError
from embedmill.executor import WorkerSpec
from embedmill.settings_file import load_settings
from embedmill.testing.index_contents import contents_of
from embedmill.testing.openai_server import OpenAIServer
from embedmill.testing.rehearsal import made_up_texts
from pipelines.ingest import ingest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


class Meeting:
    """Its calls end when three of them run at a time."""

    built = 0

    def __init__(self):
        Meeting.built += 1
        self.barrier = threading.Barrier(3)
        self.leave = threading.Event()

    def meet(self):
        self.barrier.wait(20)
        return Meeting.built

    def stay(self):
        self.leave.wait(60)

    def pass_by(self):
        pass

    def go(self):
        self.leave.set()

    def end(self):
        os._exit(1)


def ends(executor, count):
    found = {}
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found |= {done.ticket: done for done in executor.wait(1.0)}
    return found


def test_calls_run_at_a_time_in_one_worker_and_its_death_is_that_of_all(open_executor, by_value):
    executor = open_executor()
    executor.add_pool("meet", [WorkerSpec(Meeting, (), at_a_time=3)])
    for _ in range(6):
        executor.submit("meet", 0, "meet")
    # However many calls wait for it to be built, it is built once.
    assert [done.value for done in ends(executor, 6).values()] == [1] * 6
    stays, passes, leaves = (executor.submit("meet", 0, name) for name in ("stay", "pass_by", "go"))
    # Who ends is heard of, though an older call goes on.
    assert ends(executor, 3).keys() == {stays, passes, leaves}
    executor.replace("meet", 0)
    calls = [executor.submit("meet", 0, name) for name in ("stay", "stay", "end")]
    died = ends(executor, 3)
    assert died.keys() == set(calls)
    assert all(isinstance(done.error, WorkerDiedError) for done in died.values())
    executor.replace("meet", 0)


def test_a_call_that_hangs_is_noticed_while_others_beside_it_go_on(open_executor, by_value):
    executor = open_executor(call=2.0)
    executor.add_pool("meet", [WorkerSpec(Meeting, (), at_a_time=2)])
    hangs = executor.submit("meet", 0, "stay")
    deadline = time.monotonic() + 60
    passed, died = 0, {}
    # For longer than any of these takes, one of them ends again and again.
    while not died and time.monotonic() < deadline:
        executor.submit("meet", 0, "pass_by")
        ended = ends(executor, 1)
        died = {t: done for t, done in ended.items() if done.error is not None}
        passed += len(ended) - len(died)
    assert hangs in died
    assert passed > 2


class Crowd(OpenAIServer):
    """No reply with vectors of documents begins before so many requests for them are under way."""

    def __init__(self, size, on_met):
        super().__init__()
        self.size, self.on_met = size, on_met
        self.met = threading.Event()
        self.under_way = self.most = 0
        self.counting = threading.Lock()

    def reply_to(self, request):
        if b"Item " not in request.body:
            return super().reply_to(request)
        with self.counting:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.under_way == self.size and not self.met.is_set():
                self.on_met()
                self.met.set()
        try:
            assert self.met.wait(60), "too few at a time"
            return super().reply_to(request)
        finally:
            with self.counting:
                self.under_way -= 1


def settings_for(rehearsal, server, **embedder):
    """One embed worker; a segment is one request."""
    rehearsal.settings(shard_workers=1, embed_workers=1, segment_chunks=8)
    values = yaml.safe_load(rehearsal.config.read_text())
    values["embedder"] = {
        "kind": "openai",
        "dimensions": 16,
        "api_key": "${FAKE_OPENAI_KEY}",
        "base_url": server.base_url,
        "tokenizer": "estimate",
        "mode": "realtime",
        **embedder,
    }
    rehearsal.config.write_text(yaml.safe_dump(values))
    return load_settings(rehearsal.config, [])


def test_segments_of_one_request_use_all_requests_at_a_time_and_a_death_costs_these(
    open_executor, rehearsal, kill_worker
):
    texts = made_up_texts(120, longest=40)
    rehearsal.write(texts)
    executor = open_executor()
    with Crowd(4, lambda: kill_worker(executor, "embed", 0)) as server:
        settings = settings_for(rehearsal, server, requests_at_a_time=4)
        report = ingest(settings, executor)
        executor.close()
        assert report.status == "succeeded"
        assert report.chunks.embedded == report.live_records == len(texts)
        # Four wait for the reply to begin; of others it may have begun.
        assert 4 <= server.most <= 6
        assert sum(server.bill.times(text) > 1 for text in texts.values()) == 4 * 8
    assert contents_of(settings).documents() == set(texts)
