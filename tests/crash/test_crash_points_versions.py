"""Every effect of building, publishing, going back and pruning: crash before it and after it."""

import json
import re

import pytest
from deaths import MOMENTS, dying_at
from scenario import CrashIndex, embedded_twice, lived_through, run_inline, timeless
from served_stores import EVERYWHERE, KINDS, served_store

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

    def __init__(self, folder, served=None) -> None:
        more = {} if served is None else {"store": served.settings}
        super().__init__(folder, **more)
        self.faults = False
        self._old = self.settings
        self._served = served
        self._held = None

    def save(self):
        if self._served is not None:
            self._held = self._served.save()
        return super().save()

    def restore(self, saved) -> None:
        super().restore(saved)
        if self._served is not None:
            self._served.restore(self._held)

    def looked_at(self, look):
        """What a client of the store sees."""
        store = self.store()
        try:
            return look(store)
        finally:
            store.close()

    def contents(self, store) -> dict:
        found = {}
        for name in store.collections():
            batch = store.fetch(name, sorted(store.ids(name)))
            rows = zip(batch.ids, batch.payloads, batch.vectors, strict=True)
            found[name] = {record: (payload, v.tobytes()) for record, payload, v in rows}
        return found

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
        state = self.manifest
        paths = {path for path in self.paths() if not re.search(UNSTABLE, path)}
        event = arrival_event(state, self.settings.index)
        return {
            "versions": [timeless(version) for version in state.versions],
            "counts": [dict(version.counts) for version in state.versions],
            "alias": self.looked_at(lambda store: store.alias_target(self.settings.index)),
            "contents": self.looked_at(self.contents),
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


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_effect_the_same_command_completes_it(tmp_path, step, moment):
    every_death_is_survived(TwoRecipes(tmp_path), step, moment)


# What a store is asked to do; that the workspace's effects are survived shows without a server.
STORE_EFFECTS = {"make", "upsert", "remove", "alias", "drop"}
SERVED_STEPS = ("build", "publish what lags", "rollback", "prune")


@pytest.mark.parametrize("kind", KINDS if EVERYWHERE else ["weaviate"])
@pytest.mark.parametrize("step", SERVED_STEPS)
def test_killed_right_after_any_effect_on_a_real_store(tmp_path, step, kind):
    """Through the store's own client; right before an effect is right after the one before it."""
    with served_store(kind, tmp_path) as served:
        every_death_is_survived(TwoRecipes(tmp_path, served), step, "after", STORE_EFFECTS)


def every_death_is_survived(index, step, moment, kinds=None):
    run = STEPS[step](index)
    start, settings = index.save(), index.settings
    whole = Process()
    run(whole)
    expected = index.seen()
    assert expected["event"]
    problems = []
    for number in dying_at(whole.effects, moment):
        effect = whole.effects[number - 1]
        if kinds is not None and effect.kind not in kinds:
            continue
        index.restore(start)
        index.settings = settings
        dying, living = Process(number, moment), Process()
        assert not lived_through(run, dying)
        published = index.manifest.published
        # Whatever happened: readers see a version that is complete and has its collection.
        there = index.looked_at(lambda store: store.collections())
        assert published.collection in there
        assert index.looked_at(lambda store: store.alias_target("dying")) in there
        run_again(index, run, step, living)
        found = index.seen()
        wrong = [name for name in expected if found[name] != expected[name]]
        wasted = embedded_twice(index, dying, living)
        last = next((e for e in reversed(dying.effects) if e.kind == "embed"), None)
        if wasted and (last is None or sorted(wasted) != sorted(set(last.texts))):
            wrong.append(f"embedded twice: {wasted}")
        if wrong:
            problems.append((number, effect, wrong))
    assert problems == []


def run_again(index, run, step, process) -> None:
    """The same command; a version that is pruned already is not asked for once more."""
    if step == "prune" and index.manifest.version(1).pruned:
        with index.living(process):
            prune(index.settings, RunOptions())
    else:
        run(process)
