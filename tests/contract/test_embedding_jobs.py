"""Whole runs that embed through jobs: the real SDK, the fake server, a fake clock."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from typer.testing import CliRunner

from embedmill.assembly import Seams, seams, workspace_of
from embedmill.canary import CANARY_TEXTS
from embedmill.errors import ModelDriftError, RefusedError, StopRunError
from embedmill.executor import InlineExecutor
from embedmill.job_assembly import build_provider
from embedmill.job_cancelling import cancel_job, give_up_job
from embedmill.job_records import JobRecords
from embedmill.manifest import Manifest
from embedmill.settings import Settings
from embedmill.settings_file import effective_settings
from embedmill.testing.fake_vectors import vectors_for
from embedmill.testing.index_contents import contents_of
from embedmill.testing.openai_server import Fault, OpenAIServer, ServerOptions
from pipelines.cli import app
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions
from pipelines.summary import summary

DIMENSION, MODEL = 16, "text-embedding-3-small"
TEXTS = {f"d{number:02d}": f"text number {number} of the corpus" for number in range(24)}
# Two documents with the same text, in different shards.
TEXTS |= {f"twin-{letter}": "the very same words" for letter in "abcd"}
_numbers = itertools.count()


class Clock:
    """Of the driver, in seconds, and of the runner of jobs; time passes by sleeping only."""

    def __init__(self):
        self.begun = datetime.now(UTC)
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds

    def utc(self):
        return self.begun + timedelta(seconds=self.seconds)


class JobIndex:
    """An index that is embedded by jobs at a fake server."""

    def __init__(self, folder, server, clock):
        self.folder = folder
        self.server = server
        self.clock = clock
        self.store = {"kind": "memory", "name": f"jobs-{next(_numbers)}"}
        self.jobs = {"poll_seconds": 5, "poll_most_seconds": 60}
        self.embedder = {"mode": "batch"}
        self.notices = []
        self.write(TEXTS)

    def write(self, texts):
        self.texts = dict(texts)
        lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()]
        (self.folder / "rows.jsonl").write_text("".join(lines))

    @property
    def settings(self):
        values = {
            "index": "by-jobs",
            "workspace": str(self.folder / "workspace"),
            "source": {"kind": "table", "path": str(self.folder / "rows.jsonl")},
            "chunker": {"kind": "text", "max_tokens": 60},
            "embedder": {
                "kind": "openai",
                "model": MODEL,
                "dimensions": DIMENSION,
                "api_key": "${FAKE_OPENAI_KEY}",
                "base_url": self.server.base_url,
                "tokenizer": "estimate",
                "jobs": self.jobs,
                **self.embedder,
            },
            "store": self.store,
            "shard_count": 4,
            "max_delete_fraction": 1.0,
            "run": {"segment_chunks": 5},
        }
        return Settings.model_validate_json(json.dumps(values))

    def ingest(self, executor=None, *, wait=True):
        own = executor or InlineExecutor()
        options = RunOptions(
            clock=self.clock,
            sleep=self.clock.sleep,
            wait_for_jobs=wait,
            on_notice=self.notices.append,
        )
        try:
            return ingest(self.settings, own, options)
        finally:
            own.close()

    def records(self):
        workspace = workspace_of(self.settings)
        version = Manifest(workspace, "by-jobs").read().newest
        return list(JobRecords(workspace, "by-jobs", version).all())

    def is_right(self, *, dead=0):
        """The store holds all texts but the dead, each with its own vector."""
        contents = contents_of(self.settings)
        found = Counter(payload["text"] for payload in contents.payloads.values())
        missing = Counter(self.texts.values()) - found
        assert found - Counter(self.texts.values()) == Counter()
        assert missing.total() == dead
        for record, payload in contents.payloads.items():
            expected = vectors_for([payload["text"]], MODEL, DIMENSION)[0]
            np.testing.assert_allclose(contents.vectors[record], expected, atol=1e-3)

    def paid(self):
        """How often each text was charged for."""
        times = Counter(self.server.bill.times(text) for text in set(self.texts.values()))
        return {count: texts for count, texts in times.items() if count}


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Makes an index at a server with planned faults."""
    monkeypatch.setenv("FAKE_OPENAI_KEY", "sk-of-the-fake-server")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    clock = Clock()
    monkeypatch.setattr("embedmill.job_assembly._now", clock.utc)
    servers = []

    def make(*faults, **options):
        server = OpenAIServer(faults, options=ServerOptions(now=clock_of(clock), **options))
        server.__enter__()
        servers.append(server)
        folder = tmp_path / str(next(_numbers))
        folder.mkdir()
        return JobIndex(folder, server, clock)

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def clock_of(clock):
    return lambda: clock.utc().timestamp()


def fault(route, deed, **more):
    return Fault(at=route, do=deed, **more)


PASSING = {
    "nothing": [],
    "create: the reply is lost, the job exists": [fault("batches.create", "drop-reply")],
    "create: the request is lost": [fault("batches.create", "drop")],
    "create: a page of a proxy instead of a reply": [fault("batches.create", "html-200")],
    "create: 502": [fault("batches.create", "html-502", times=2)],
    "create: a rate limit": [fault("batches.create", "rate-limit", value="121", times=2)],
    "create: a rate limit by date": [
        fault("batches.create", "rate-limit", value="Thu, 01 Jan 2026 00:00:00 GMT")
    ],
    "create: the queue is full": [fault("batches.create", "token-limit", times=2)],
    "upload: the reply is lost": [fault("files.create", "drop-reply")],
    "upload: 500": [fault("files.create", "error", times=2)],
    "listing: 500 after a lost reply": [
        fault("batches.create", "drop-reply"),
        fault("batches.list", "error", times=3),
    ],
    "poll: no answers": [fault("batches.get", "html-502", times=12)],
    "poll: a rate limit": [fault("batches.get", "rate-limit", value="30", times=6)],
    "poll: unknown for a moment": [fault("batches.get", "not-found", times=2)],
    "poll: an unknown status": [fault("job", "stay", value="paused", count=4)],
    "job: the queue is full after all": [fault("job", "fail", value="token_limit_exceeded")],
    "upload: the file is too large": [fault("files.create", "error", value="413")],
    "job: the file is too large": [fault("job", "fail", value="too_many_tasks")],
    "job: expired with some done": [fault("job", "expire", count=9)],
    "job: cancelled with some done": [fault("job", "cancel", count=9)],
    "rows: server errors": [fault("job", "fail-rows", count=4)],
    "rows: all of them server errors": [fault("job", "fail-rows", count=99)],
    "rows: both a response and an error": [fault("job", "contradict-rows", count=2)],
    "rows: lists of numbers": [fault("job", "as-floats")],
    "results: cut off twice": [fault("files.content", "cut", count=900, times=2)],
    "results: an unreadable line and a blank one": [
        fault("job", "malformed-line"),
        fault("job", "blank-line"),
    ],
    "results: an empty id of the error file": [fault("job", "empty-error-id")],
}
# Done, and charged for, and not delivered.
PAID_AGAIN = {"rows: both a response and an error": 2}


@pytest.mark.parametrize("name", PASSING)
def test_a_passing_trouble_ends_in_a_right_index_and_no_text_is_paid_for_twice(index, name):
    made = index(*PASSING[name])
    if name in PAID_AGAIN:
        made.jobs["canaries"] = 0
    report = made.ingest()
    assert (report.status, report.problems()) == ("succeeded", [])
    made.is_right()
    again = PAID_AGAIN.get(name, 0)
    assert made.paid() == ({1: 25 - again, 2: again} if again else {1: 25})
    assert all(record.outcome is not None for record in made.records())
    assert report.chunks.embedded == 25
    assert report.chunks.deduplicated == 3


@pytest.mark.parametrize("name", ["create: the reply is lost, the job exists", "nothing"])
def test_requests_of_several_texts_bring_the_same(index, name):
    made = index(*PASSING[name])
    made.jobs["inputs_per_request"] = 4
    made.ingest()
    made.is_right()
    assert made.paid() == {1: 25}


@pytest.mark.parametrize("inputs", [1, 4])
def test_a_text_that_the_model_refuses_is_a_dead_letter_and_its_neighbours_are_not(index, inputs):
    made = index(refused_words=("number 7 ",))
    made.jobs["inputs_per_request"] = inputs
    report = made.ingest()
    assert (report.status, report.dead_letters) == ("partial", 1)
    made.is_right(dead=1)
    assert made.paid() == {1: 24}


def test_a_vector_that_is_not_finite_is_a_dead_letter(index):
    made = index(fault("job", "nan-rows", count=2))
    made.jobs["canaries"] = 0
    report = made.ingest()
    assert report.dead_letters == 2
    made.is_right(dead=2)


def test_a_text_that_the_results_lack_is_sent_again(index):
    made = index(fault("job", "miss-rows", count=3))
    made.jobs["canaries"] = 0
    made.ingest()
    made.is_right()
    assert made.paid() == {1: 22, 2: 3}


MENDED_BY_HAND = {
    "a wrong key": ([fault("files.create", "bad-key")], "credentials", 0),
    "no credit": ([fault("batches.create", "no-money")], "insufficient-quota", 0),
    "no credit within the job": ([fault("job", "broke-rows", count=5)], "insufficient-quota", 0),
    "a job that is refused": ([fault("job", "fail", value="invalid_url")], "job-refused", 0),
    "a doubled row": ([fault("job", "double-rows")], "quarantined", 25),
    "a foreign row": ([fault("job", "unknown-row")], "quarantined", 25),
    "a row without an id": ([fault("job", "null-id-rows")], "quarantined", 25),
    "no results at all": ([fault("job", "no-output-id")], "quarantined", 25),
}


@pytest.mark.parametrize("name", MENDED_BY_HAND)
def test_what_a_person_has_to_look_at_ends_the_run_and_the_same_command_goes_on(index, name):
    faults, code, again = MENDED_BY_HAND[name]
    made = index(*faults)
    with pytest.raises(StopRunError) as stopped:
        made.ingest()
    assert stopped.value.code == code
    assert set(made.paid()) <= {1}
    assert made.ingest().status == "succeeded"
    made.is_right()
    assert made.paid() == ({2: 25} if again else {1: 25})


def test_results_that_the_provider_has_deleted_are_not_paid_for_again_unasked(index):
    made = index()
    made.ingest(wait=False)
    made.server.jobs.get("batch_0000000001")
    for _ in range(4):
        made.server.jobs.get("batch_0000000001")
    made.server.account.delete_file("file-0000000002")
    with pytest.raises(StopRunError) as stopped:
        made.ingest()
    assert stopped.value.code == "results-gone"
    assert made.paid() == {1: 25}


def test_a_small_remainder_goes_through_the_realtime_endpoint(index):
    made = index(fault("job", "fail-rows", count=4))
    made.embedder["mode"] = "auto"
    made.jobs["realtime_below"] = 10
    made.ingest()
    made.is_right()
    assert made.paid() == {1: 25}
    assert made.server.posts("/batches") == 1


def test_at_the_deadline_a_job_is_cancelled_and_the_rest_goes_through_the_realtime_endpoint(index):
    made = index(fault("job", "stay", value="queued", count=0))
    made.embedder["mode"] = "auto"
    made.jobs |= {"realtime_below": 0, "deadline_hours": 0.1, "canaries": 0}
    made.ingest()
    made.is_right()
    assert made.paid() == {1: 25}
    outcome = made.records()[0].outcome
    assert (outcome.status, outcome.buckets.succeeded) == ("cancelled", 12)


def test_no_more_tokens_wait_than_the_account_may_have(index):
    made = index(enqueued_tokens=260)
    made.embedder["enqueued_tokens"] = 260
    made.ingest()
    made.is_right()
    assert made.server.posts("/batches") >= 2
    assert all(record.outcome.status == "succeeded" for record in made.records())


# Runs that do not wait.


def until_done(made, runs=20):
    statuses = []
    for _ in range(runs):
        report = made.ingest(wait=False)
        statuses.append(report.status)
        if report.status != "waiting":
            return statuses
        made.clock.sleep(120)
    raise AssertionError(statuses)


def test_a_run_that_does_not_wait_submits_and_a_later_one_collects(index):
    made = index()
    statuses = until_done(made)
    assert statuses[0] == "waiting"
    assert statuses[-1] == "succeeded"
    assert made.server.posts("/batches") == 1
    made.is_right()
    assert made.paid() == {1: 25}


def test_a_source_that_changes_while_a_job_runs_leaves_nothing_stale_and_pays_for_the_news(index):
    made = index()
    begun = made.ingest(wait=False)
    assert begun.status == "waiting"
    assert [(job["status"], job["rows"]) for job in begun.open_jobs] == [("submitted", 25)]
    assert any(line.startswith("waiting    1 embedding job at") for line in summary(begun))
    texts = dict(TEXTS)
    del texts["d00"], texts["twin-a"]
    texts["d01"] = "wholly other words"
    texts["new"] = texts["d02"]
    made.write(texts)
    made.clock.sleep(60)
    assert made.ingest(wait=False).status == "waiting"
    made.write({**texts, "newer": "the newest words", "newest": "the newest words"})
    until_done(made)
    made.is_right()
    paid = Counter(made.server.bill.times(text) for text in {*TEXTS.values(), *texts.values()})
    assert set(paid) == {1}
    assert made.server.bill.times("the newest words") == 1
    assert made.ingest().chunks.chunks == 0


def test_a_changed_document_takes_the_vectors_of_chunks_that_were_in_flight(index):
    made = index()
    made.jobs["canaries"] = 0
    part = "word " * 30
    made.write({"long": f"{part}\n\nfirst", "other": "something"})
    made.ingest(wait=False)
    made.write({"long": f"{part}\n\nsecond", "other": "something"})
    until_done(made)
    bill = made.server.bill
    paid = [bill.times(text) for text in CANARY_TEXTS.values()]
    # The canary is asked again in every run; nothing else is.
    assert paid == [paid[0]] * len(CANARY_TEXTS)
    assert bill.more_than_once() == len(CANARY_TEXTS)


def test_a_replay_need_not_wait_for_its_job_and_the_next_ingest_collects_it(index):
    made = index(fault("job", "reject-rows", count=2))
    made.ingest()
    made.is_right(dead=1)
    settings = made.folder / "settings.yaml"
    settings.write_text(effective_settings(made.settings))
    command = ["dlq", "replay", "-c", str(settings), "--local", "--no-wait"]
    replayed = CliRunner().invoke(app, command)
    assert replayed.exit_code == 8, replayed.output
    assert f"run embedmill ingest {settings} later to collect them" in replayed.output
    assert until_done(made)[-1] == "succeeded"
    made.is_right()
    assert made.paid() == {1: 25}


# Settings that ask for no jobs any more, while some are open.


def test_rows_of_open_jobs_are_not_paid_for_again_when_all_else_is_embedded_in_realtime(index):
    made = index()
    made.ingest(wait=False)
    made.embedder["mode"] = "realtime"
    made.write({**TEXTS, "new": "a text that is not to wait"})
    assert made.ingest(wait=False).status == "waiting"
    assert made.server.bill.times("a text that is not to wait") == 1
    (record,) = made.records()
    assert f"1 embedding job with 25 rows is still open ({record.intent.key}, " in made.notices[0]
    assert "leaves them to a later one" in made.notices[0]
    report = made.ingest()
    assert (report.status, [job["key"] for job in report.jobs]) == (
        "succeeded",
        [record.intent.key],
    )
    made.is_right()
    assert made.paid() == {1: 26}
    assert made.server.posts("/batches") == 1
    made.notices.clear()
    assert made.ingest().chunks.chunks == 0
    assert made.notices == []
    jobs = Manifest(workspace_of(made.settings), "by-jobs").read().newest.jobs
    assert [job["key"] for job in jobs] == [record.intent.key]


def test_an_intent_that_was_never_sent_is_dropped_and_its_rows_are_embedded_in_realtime(index):
    made = index(fault("files.create", "bad-key"))
    with pytest.raises(StopRunError):
        made.ingest()
    made.embedder["mode"] = "realtime"
    report = made.ingest()
    assert "perhaps never sent" in made.notices[0]
    made.is_right()
    assert made.paid() == {1: 25}
    assert (made.server.posts("/files"), made.server.posts("/batches")) == (1, 0)
    assert [(job["status"], job["tokens_charged"]) for job in report.jobs] == [("abandoned", 0)]


def test_an_open_job_that_brings_nothing_is_named_not_waited_for_and_closed_by_the_next(index):
    made = index()
    made.ingest(wait=False)
    (record,) = made.records()
    (folder,) = made.folder.glob(f"workspace/**/{record.intent.key}")
    aside = folder.rename(made.folder / "aside")
    made.embedder["mode"] = "realtime"
    made.ingest()
    aside.rename(folder)
    made.notices.clear()
    report = made.ingest()
    assert [job["key"] for job in report.unneeded_jobs] == [record.intent.key]
    said = next(line for line in summary(report) if line.startswith("unneeded"))
    assert f"embedmill jobs cancel {record.intent.key} -c SETTINGS" in said
    assert made.notices == []
    made.embedder["mode"] = "batch"
    made.write({**TEXTS, "new": "a text that came later"})
    report = made.ingest()
    assert sorted(job["status"] for job in report.jobs) == ["succeeded", "unneeded"]
    assert report.unneeded_jobs == ()
    assert made.server.bill.times("a text that came later") == 1
    # Of the two output files one.
    assert made.server.plan.calls["files.content"] == 1
    made.is_right()


def test_what_a_job_did_before_it_expired_is_kept_and_the_rest_embedded_in_realtime(index):
    made = index(fault("job", "expire", count=9))
    made.ingest(wait=False)
    made.embedder["mode"] = "realtime"
    made.ingest()
    made.is_right()
    assert made.paid() == {1: 25}
    assert made.server.posts("/batches") == 1
    settings = made.folder / "settings.yaml"
    settings.write_text(effective_settings(made.settings))
    listed = CliRunner().invoke(app, ["jobs", "list", "-c", str(settings)])
    assert listed.output.endswith("batch_0000000001  8 succeeded, 17 expired\n")


def test_a_job_that_no_key_reaches_any_more_is_given_up_by_hand(index, monkeypatch):
    made = index(api_key="sk-of-the-fake-server")
    made.ingest(wait=False)
    with OpenAIServer(options=ServerOptions(now=clock_of(made.clock))) as other:
        made.server, of_before = other, made.server
        made.clock.sleep(3600)
        with pytest.raises(StopRunError, match="batch_0000000001") as caught:
            made.ingest()
        assert "another API key or to another base_url" in caught.value.hint
        (record,) = made.records()
        assert f"jobs cancel {record.intent.key} --give-up" in caught.value.hint
        workspace = workspace_of(made.settings)
        version = Manifest(workspace, "by-jobs").read().newest
        records = JobRecords(workspace, "by-jobs", version)
        provider, _ = build_provider(made.settings.embedder, version.embedding)
        with pytest.raises(RefusedError, match=r"was not cancelled: .*batch_0000000001") as refused:
            cancel_job(record, records, provider, clock=made.clock.utc, sleep=made.clock.sleep)
        assert "--give-up -c SETTINGS" in refused.value.hint
        provider.close()
        give_up_job(record, records, clock=made.clock.utc)
        made.ingest()
        made.is_right()
        made.server = of_before


# The command itself, and processes that are killed.


def config_of(made):
    """Its settings as a file."""
    config = made.folder / "index.yaml"
    config.write_text(made.settings.model_dump_json())
    return config


def started(made):
    """A run in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.cli", "ingest", str(config_of(made)), "--local"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "FAKE_OPENAI_KEY": "sk-of-the-fake-server"},
    )


def ended(process):
    output = process.communicate(timeout=60)[0].decode()
    return process.returncode, output


@pytest.fixture
def on_disk(index):
    """An index that outlives a process."""

    def make(*faults, **options):
        made = index(*faults, **options)
        made.store = {"kind": "qdrant_embedded", "path": str(made.folder / "store")}
        made.jobs |= {"poll_seconds": 0.2, "poll_most_seconds": 0.2}
        return made

    return make


def test_the_command_says_that_it_waits_and_then_that_all_is_done(on_disk):
    # The job has ended when it is asked about first.
    made = on_disk(polls_per_status=0)
    command = ["ingest", str(config_of(made)), "--local", "--no-wait"]
    for status in (8, 0):
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == status, done.output
    made.is_right()
    assert made.paid() == {1: 25}


def test_a_process_that_is_killed_while_it_waits_is_followed_by_one_that_collects(on_disk):
    made = on_disk(polls_per_status=3)
    process = started(made)
    deadline = time.monotonic() + 40
    while made.server.plan.calls["batches.get"] < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    status, output = ended(started(made))
    assert status == 0, output
    made.is_right()
    assert made.paid() == {1: 25}
    assert made.server.posts("/batches") == 1


class AnotherModel:
    """What a provider may put behind the same name."""

    def __init__(self, real):
        self._real, self.recipe = real, real.recipe

    def embed(self, texts, role):
        found = self._real.embed(texts, role)
        return replace(found, vectors=np.roll(found.vectors, 1, axis=1))


def test_a_provider_that_changed_its_model_is_found_out_before_a_job_is_submitted(index):
    made = index()
    made.ingest()
    jobs, right = len(made.records()), dict(made.texts)
    made.write({**right, "new": "a text that came later"})
    with seams(Seams(embedder=AnotherModel)), pytest.raises(ModelDriftError) as caught:
        made.ingest()
    assert "embedder.revision: a new word" in caught.value.hint
    assert len(made.records()) == jobs
    assert made.server.bill.times("a text that came later") == 0
    made.texts = right
    made.is_right()
