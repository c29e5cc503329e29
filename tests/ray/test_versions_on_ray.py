"""A model is swapped on Ray while workers are killed and the run is stopped in between."""

import json
import threading

import pytest

from embedmill.assembly import store_of, workspace_of
from embedmill.executor import InlineExecutor
from embedmill.index_reader import IndexReader
from embedmill.manifest import Manifest
from embedmill.settings import Settings
from embedmill.testing.rehearsal import made_up_texts
from pipelines.ingest import ingest
from pipelines.publish import publish, rollback
from pipelines.reembed import reembed
from pipelines.run_options import InterruptedRunError, RunOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]
TEXTS = made_up_texts(120, longest=60)


def with_model(settings, dimension):
    embedder = {"kind": "hashing", "dimension": dimension, "max_tokens": 128}
    values = {**settings.model_dump(mode="json"), "embedder": embedder}
    return Settings.model_validate_json(json.dumps(values))


def test_a_swap_outlives_killed_workers_and_a_stop(open_executor, rehearsal, living_workers):
    rehearsal.write(TEXTS)
    old = with_model(rehearsal.settings(segment_chunks=8, shard_workers=1, embed_workers=1), 64)
    inline = InlineExecutor()
    first = ingest(old, inline)
    inline.close()
    new = with_model(old, 96)
    killed, stop = [], threading.Event()

    def kill_all_and_stop(progress):
        if progress.chunks and not killed:
            for worker in living_workers():
                worker.kill()
                killed.append(worker.pid)
            stop.set()

    executor = open_executor()
    with pytest.raises(InterruptedRunError):
        reembed(new, executor, RunOptions(on_progress=kill_all_and_stop, stop=stop))
    executor.close()
    assert killed
    manifest = Manifest(workspace_of(new), new.index)
    assert [version.state for version in manifest.read().versions] == ["published", "building"]

    # The same command again: what has vectors is not embedded again, and workers may die anew.
    dead = []

    def kill_one(progress):
        if progress.chunks and not dead:
            victim = living_workers()[0]
            victim.kill()
            dead.append(victim.pid)

    executor = open_executor()
    rebuilt = reembed(new, executor, RunOptions(on_progress=kill_one))
    executor.close()
    assert dead
    assert rebuilt.version.state == "ready"
    assert 0 < rebuilt.report.chunks.embedded < first.chunks.embedded
    assert rebuilt.report.stored_records == first.stored_records

    done = publish(new, executor, RunOptions())
    executor.close()
    assert [gate.name for gate in done.gates if not gate.passed] == []
    assert done.switch.after.number == 2
    name = next(iter(TEXTS))
    with IndexReader(new) as reader:
        assert reader.version.number == 2
        hits = reader.search(" ".join(TEXTS[name].split()[1:9]), k=3)
        assert hits[0].payload["doc_id"] == name
    assert rollback(new).switch.after.number == 1
    store = store_of(new)
    assert store.alias_target(new.index) == done.switch.before.collection
    store.close()
