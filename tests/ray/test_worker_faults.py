"""Real workers that are killed, crash, hang or cannot start."""

import logging
import os
import signal
import sys
import time
from collections import Counter

import pytest
from deaths import EVERY_MOMENT

import pipelines.faults
import pipelines.pools
from embedmill.assembly import workspace_of
from embedmill.dead_letter import read_letters
from embedmill.errors import RefusedError, SettingsError, StopRunError
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import made_up_texts
from embedmill.testing.worker_faults import Faults, Faulty, embedded_batches
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@pytest.fixture
def inject(monkeypatch):
    """Has workers of the run built with faults."""

    def inject(faults):
        for name in ("EmbedWorker", "ShardWorker"):
            real = getattr(pipelines.pools, name)
            monkeypatch.setattr(pipelines.pools, name, Faulty(real, faults))

    return inject


class Killer:
    """Kills workers, one after the other, as the run goes on: ``on_progress`` of a run."""

    def __init__(self, executor, *orders):
        """Each order: pool, worker, and when it is time."""
        self.executor = executor
        self.orders = list(orders)
        self.killed = []

    def __call__(self, progress):
        if not self.orders:
            return
        pool, worker, is_time = self.orders[0]
        process = self.executor.process_of(pool, worker)
        if process is not None and is_time(progress):
            os.kill(process, signal.SIGKILL)
            self.killed.append(pool)
            del self.orders[0]


KILLS = {
    "read": ("read", 0, lambda progress: True),
    "shard": ("shard", 1, lambda progress: progress.documents.read > 0),
    "write": ("write", 0, lambda progress: progress.applied > 0),
    "embed": ("embed", 0, lambda progress: progress.chunks > 0),
}


# One run outlives them all; with every moment asked for, also a run for each.
DEATHS = [tuple(KILLS), *([(pool,) for pool in KILLS] if EVERY_MOMENT else [])]


@pytest.mark.parametrize("pools", DEATHS, ids="-".join)
def test_a_run_whose_workers_are_killed_ends_as_if_they_had_not_been(
    open_executor, rehearsal, expected, inject, caplog, pools
):
    # Two blocks; one of them is being read when the reader is known.
    texts = made_up_texts(1_500, longest=6)
    rehearsal.write(texts)
    log = rehearsal.folder / "embedded"
    inject(Faults(embed_log=str(log), pause_s=0.05, read_pause_s=0.5))
    executor = open_executor()
    killer = Killer(executor, *map(KILLS.get, pools))
    settings = rehearsal.settings(segment_chunks=128, **few_workers(*pools))
    with caplog.at_level(logging.WARNING):
        report = ingest(settings, executor, RunOptions(on_progress=killer))
    executor.close()
    assert killer.killed == list(pools)
    assert [pool for pool in pools if f"{pool} worker" not in caplog.text] == []
    assert report.status == "succeeded"
    assert report.documents.read == report.documents.added == len(texts)
    again = [digest for digest, calls in calls_by_batch(log).items() if calls > 1]
    assert len(again) <= pools.count("embed")
    assert_same_contents(contents_of(settings), expected(texts))


def few_workers(*two):
    """One worker of each kind, but for these: each is a process that takes a second to start."""
    return {f"{pool}_workers": 2 if pool in two else 1 for pool in ("shard", "embed")}


def calls_by_batch(log):
    return Counter(digest for digest, _ in embedded_batches(log))


def test_documents_that_end_their_worker_end_alone_in_the_dead_letters(
    open_executor, rehearsal, inject
):
    # Whom a death is to be blamed on is halved until one is left, and each half is a new process.
    texts = made_up_texts(24)
    drafting = {"doc-00002": "raises", "doc-00011": "crashes"}
    # Whatever it does, a worker that hangs is killed.
    embedding = {"doc-00004": "weeps", "doc-00013": "breaks", "doc-00022": "sleeps"}
    poison = drafting | embedding
    rehearsal.write({name: f"{text} {poison.get(name, '')}" for name, text in texts.items()})
    fates = ("raise", "exit", "hang")
    inject(
        Faults(
            parsing=dict(zip(drafting.values(), fates, strict=False)),
            embedding=dict(zip(embedding.values(), fates, strict=True)),
        )
    )
    executor = open_executor(call=4.0)
    settings = rehearsal.settings(segment_chunks=8, **few_workers("shard", "embed"))
    report = ingest(settings, executor)
    executor.close()
    assert report.status == "partial"
    assert (report.documents.read, report.documents.added, report.documents.dead) == (24, 22, 2)
    dead = {letter.doc_id: (letter.stage, letter.code) for letter in letters_of(settings)}
    assert [dead.pop(name) for name in drafting] == [
        ("parse", "injected"),
        ("read", "killed-worker"),
    ]
    assert [dead.pop(name) for name in embedding] == [
        ("embed", "injected"),
        ("embed", "killed-worker"),
        ("embed", "killed-worker"),
    ]
    assert dead == {}
    # Of a document that ended its embedder other chunks may be there.
    assert contents_of(settings).documents() | embedding.keys() == texts.keys() - drafting.keys()


def letters_of(settings):
    return list(read_letters(workspace_of(settings), settings.index))


def test_a_pool_that_the_cluster_can_never_hold_is_refused_before_work_starts(
    open_executor, rehearsal
):
    rehearsal.write(made_up_texts(3))
    executor = open_executor()
    with pytest.raises(RefusedError, match="64 CPU, the cluster has 4") as refused:
        ingest(rehearsal.settings(embed_workers=64), executor)
    assert "run.embed_workers" in refused.value.hint
    assert not list(rehearsal.folder.rglob("*.docs.parquet"))


class RefusesToStart:
    """A worker whose settings cannot be used where it runs."""

    def __init__(self, *_):
        raise SettingsError("this worker cannot be built", hint="do something else")


class DiesAtStart:
    """A worker whose process ends while it is built, as when memory is short."""

    def __init__(self, *_):
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(9)


def test_what_a_constructor_raises_ends_the_run(open_executor, rehearsal, monkeypatch, by_value):
    rehearsal.write(made_up_texts(3))
    monkeypatch.setattr(pipelines.pools, "EmbedWorker", RefusesToStart)
    with pytest.raises(SettingsError, match="cannot be built") as refused:
        ingest(rehearsal.settings(**few_workers()), open_executor())
    assert refused.value.hint == "do something else"


def test_a_worker_that_never_gets_built_blames_no_document(
    open_executor, rehearsal, monkeypatch, by_value
):
    rehearsal.write(made_up_texts(3))
    monkeypatch.setattr(pipelines.pools, "EmbedWorker", DiesAtStart)
    monkeypatch.setattr(pipelines.faults, "MIN_DEATHS", 3)
    settings = rehearsal.settings(**few_workers())
    with pytest.raises(StopRunError, match=r"4 workers died and nothing was committed.*of luck"):
        ingest(settings, open_executor())
    assert letters_of(settings) == []


def test_a_module_that_is_missing_on_a_node_ends_the_run_at_once(open_executor):
    executor = open_executor()
    # This module is none that a worker can import.
    executor.add_pool("lost", [pipelines.pools.WorkerSpec(Warns, ())])
    executor.submit("lost", 0, "work")
    (done,) = executor.wait(60.0)
    assert isinstance(done.error, StopRunError)
    assert "lost worker 0 cannot start: ModuleNotFoundError" in str(done.error)


def test_a_worker_that_misses_its_start_ends_the_run(open_executor, rehearsal):
    rehearsal.write(made_up_texts(3))
    holder = open_executor()
    holder.add_pool("holds", [pipelines.pools.WorkerSpec(dict, (), cpus=4.0)])
    holder.submit("holds", 0, "keys")
    assert holder.wait(60.0)[0].value is not None
    with pytest.raises(StopRunError, match="did not start within 2 s; the cluster has 0 CPU"):
        ingest(rehearsal.settings(**few_workers()), open_executor(start=2.0))


class Warns:
    """A worker with something to say."""

    def work(self):
        sys.stdout.write("noise\n")
        logging.getLogger("embedmill.any").info("detail")
        logging.getLogger("some.library").warning("something is odd")
        return "done"


def test_only_warnings_of_workers_reach_the_log(open_executor, by_value, caplog, capfd):
    executor = open_executor()
    executor.add_pool("chatty", [pipelines.pools.WorkerSpec(Warns, ())])
    executor.submit("chatty", 0, "work")
    with caplog.at_level(logging.WARNING):
        assert [done.value for done in executor.wait(60.0)] == ["done"]
    assert caplog.messages == ["chatty worker 0: something is odd"]
    executor.close()
    assert capfd.readouterr() == ("", "")


def test_nothing_of_an_ended_call_stays_with_the_executor(open_executor):
    executor = open_executor()
    executor.add_pool("plain", [pipelines.pools.WorkerSpec(dict, ())])
    for _ in range(3):
        for _ in range(200):
            executor.submit("plain", 0, "copy")
        ended = []
        while len(ended) < 200:
            ended += executor.wait(30.0)
    kept = [executor._refs, executor._parts, executor._actors["plain", 0].calls]
    assert [len(some) for some in kept] == [0, 0, 0]


class Slow:
    """A worker that takes its time, or ends."""

    def rest(self, seconds):
        time.sleep(seconds)

    def end(self):
        os._exit(1)


def test_calls_of_a_worker_that_died_end_in_the_order_of_submission(open_executor, by_value):
    executor = open_executor()
    for life in range(3):
        executor.add_pool(f"pool-{life}", [pipelines.pools.WorkerSpec(Slow, ())])
        calls = [("rest", 0.0), ("rest", 0.05), ("end",), *[("rest", 0.0)] * 20]
        tickets = [executor.submit(f"pool-{life}", 0, *call) for call in calls]
        ended = []
        while len(ended) < len(tickets):
            ended += [done.ticket for done in executor.wait(30.0)]
        assert ended == tickets
        executor.replace(f"pool-{life}", 0)
