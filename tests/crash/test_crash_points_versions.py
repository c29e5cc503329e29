"""Every effect of building, publishing, going back and pruning: crash before it and after it."""

import json
import re

import pytest
from scenario import CrashIndex, embedded_twice, lived_through, run_inline, timeless

from embedmill.announcing import kept_event
from embedmill.arrivals import arrival_event
from embedmill.settings import Settings
from embedmill.testing.crash_points import Process
from pipelines.prune import prune
from pipelines.publish import publish, rollback
from pipelines.reembed import reembed
from pipelines.run_options import RunOptions

FIRST = {
    "same": "one two three four five six",
    "changes": "north east south west up down",
    "goes": "iron copper silver",
    "twin-a": "equal words in two documents",
    "twin-b": "equal words in two documents",
}
SECOND = {
    **{name: FIRST[name] for name in ("same", "twin-a", "twin-b")},
    "changes": "north east south west over under",
    "new": "lorem ipsum",
}


class TwoRecipes(CrashIndex):
    """An index whose settings may be swapped; all its versions are looked at."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.faults = False
        self._old = self.settings

    def swap(self, dimension) -> None:
        embedder = {"kind": "hashing", "dimension": dimension}
        values = {**self._old.model_dump(mode="json"), "embedder": embedder}
        self.settings = Settings.model_validate_json(json.dumps(values))

    def reembed(self, process=None):
        with self.living(process):
            return run_inline(lambda e: reembed(self.settings, e, RunOptions()))

    def publish(self, process=None):
        with self.living(process):
            return run_inline(
                lambda e: publish(self.settings, e, RunOptions(), gates=lambda *_: ())
            )

    def rollback(self, process=None):
        with self.living(process):
            return rollback(self.settings)

    def prune(self, process=None):
        with self.living(process):
            return prune(self.settings, RunOptions(), number=1)

    def seen(self) -> dict:
        """All that people and later commands can see."""
        store, state = self.store(), self.manifest
        contents = {}
        for name in store.collections():
            found = store.fetch(name, sorted(store.ids(name)))
            rows = zip(found.ids, found.payloads, found.vectors, strict=True)
            contents[name] = {record: (payload, v.tobytes()) for record, payload, v in rows}
        paths = {path for path in self.paths() if not re.search(UNSTABLE, path)}
        event = arrival_event(state, self.settings.index)
        return {
            "versions": [timeless(version) for version in state.versions],
            "counts": [dict(version.counts) for version in state.versions],
            "alias": store.alias_target(self.settings.index),
            "contents": contents,
            "paths": paths,
            "event": kept_event(self.workspace, self.settings.index, event["run"]) == event,
        }


UNSTABLE = r"/(manifest|runs|dead_letters|lease|build-lease)/"


def before_build(index):
    index.write(FIRST)
    index.ingest()
    index.swap(12)
    return index.reembed


def before_catching_up(index):
    before_build(index)()
    index.swap(8)
    index.ingest(documents=SECOND)
    index.swap(12)
    return index.reembed


def before_publishing(index):
    before_build(index)()
    return index.publish


def before_publishing_what_lags(index):
    before_catching_up(index)
    return index.publish


def before_going_back(index):
    before_publishing(index)()
    return index.rollback


def before_the_sync_of_what_was_restored(index):
    before_publishing(index)()
    index.ingest(documents=SECOND)
    index.rollback()
    index.swap(8)
    return index.ingest


def before_pruning(index):
    before_publishing(index)()
    return index.prune


STEPS = {
    "build": before_build,
    "catching up": before_catching_up,
    "publish": before_publishing,
    "publish what lags": before_publishing_what_lags,
    "rollback": before_going_back,
    "sync after rollback": before_the_sync_of_what_was_restored,
    "prune": before_pruning,
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_effect_the_same_command_completes_it(tmp_path, step, moment):
    index = TwoRecipes(tmp_path)
    run = STEPS[step](index)
    start, settings = index.save(), index.settings
    whole = Process()
    run(whole)
    expected = index.seen()
    assert expected["event"]
    problems = []
    for number in range(1, len(whole.effects) + 1):
        index.restore(start)
        index.settings = settings
        dying, living = Process(number, moment), Process()
        assert not lived_through(run, dying)
        published = index.manifest.published
        # Whatever happened: readers see a version that is complete and has its collection.
        assert published.collection in index.store().collections()
        assert index.store().alias_target("dying") in index.store().collections()
        run_again(index, run, step, living)
        found = index.seen()
        wrong = [name for name in expected if found[name] != expected[name]]
        wasted = embedded_twice(index, dying, living)
        last = next((e for e in reversed(dying.effects) if e.kind == "embed"), None)
        if wasted and (last is None or sorted(wasted) != sorted(set(last.texts))):
            wrong.append(f"embedded twice: {wasted}")
        if wrong:
            problems.append((number, whole.effects[number - 1], wrong))
    assert problems == []


def run_again(index, run, step, process) -> None:
    """The same command; a version that is pruned already is not asked for once more."""
    if step == "prune" and index.manifest.version(1).pruned:
        with index.living(process):
            prune(index.settings, RunOptions())
    else:
        run(process)
