"""Every effect of every pipeline: crash before it and after it, run the same again, compare."""

import itertools
import uuid

import pytest
from deaths import MOMENTS, dying_at
from scenario import REFUSED, REJECTED, CrashIndex, embedded_twice, litter, lived_through

from embedmill.assembly import store_of, workspace_of
from embedmill.testing.crash_points import Crash, Process
from embedmill.workspace import LocalWorkspace

FIRST = {
    "same": "one two three four five six",
    "grows": "seven eight nine",
    "shrinks": "red orange yellow green blue violet black white grey",
    "changes": "north east south west up down left right",
    "empties": "spring summer autumn winter",
    "goes": "iron copper silver gold",
    "is-renamed": "oak ash elm birch pine",
    "twin-a": "equal words in two documents of the index",
    "twin-b": "equal words in two documents of the index",
    "twice-within": "again and again again and again",
    "refused": f"a good chunk {REFUSED} it is here after",
    "rejected": f"one good chunk {REJECTED} it is then more",
    "unreadable": ["no text"],
    "empty": "",
}
SECOND = {
    "same": FIRST["same"],
    "grows": "seven eight nine ten eleven twelve thirteen",
    "shrinks": "red orange yellow",
    "changes": "north east south west over under left right",
    "empties": "",
    "was-renamed": FIRST["is-renamed"],
    "twin-a": FIRST["twin-a"],
    "twin-c": FIRST["twin-a"],
    "twice-within": FIRST["twice-within"],
    "refused": FIRST["refused"],
    "rejected": FIRST["rejected"],
    "refused-too": f"{REFUSED} as well",
    "unreadable": ["no text"],
    "empty": "no more",
    "new": "lorem ipsum dolor sit amet",
}
THIRD = {**SECOND, "unreadable": "now it can be read"}


def damage(index) -> None:
    """Spoil the store behind the ledger's back."""
    store, collection = index.store(), index.version.collection
    ids = sorted(store.ids(collection))
    store.delete(collection, ids[:3])
    foreign = store.fetch(collection, ids[3:6])
    others = [uuid.uuid5(uuid.NAMESPACE_URL, str(record)) for record in foreign.ids]
    store.upsert(collection, type(foreign)(others, foreign.vectors, foreign.payloads))
    altered = store.fetch(collection, ids[6:9])
    payloads = [{**payload, "text": "altered"} for payload in altered.payloads]
    store.upsert(collection, type(altered)(altered.ids, altered.vectors, payloads))


def before_first(index):
    index.write(FIRST)
    return index.ingest


def before_sync(index):
    before_first(index)()
    index.write(SECOND)
    return index.ingest


def before_replay(index):
    before_sync(index)()
    index.write(THIRD)
    index.faults = False
    return index.replay


def before_failing_replay(index):
    before_sync(index)()
    return index.replay


def before_compaction(index):
    before_replay(index)()
    return index.compact


def before_repair(index):
    before_compaction(index)()
    damage(index)
    return lambda process=None: index.audit(process, repair=True)


def before_nightly_compaction(index):
    """The sync that comes when the segments have become too many."""
    some = {name: FIRST[name] for name in ("same", "grows", "refused", "rejected")}
    for night in range(30):
        index.write({**some, "new": f"night {night}", "newer": f"{REFUSED} at {night}"})
        before = index.save()
        index.ingest()
        if any(path.endswith(".snapshot") for path in index.paths()):
            index.restore(before)
            return index.ingest
    raise AssertionError("nothing was compacted")


STEPS = {
    "first ingest": before_first,
    "sync": before_sync,
    "replay": before_replay,
    "failing replay": before_failing_replay,
    "compaction": before_compaction,
    "repair": before_repair,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_effect_ends_as_if_nothing_had_happened(tmp_path, step, moment):
    index = CrashIndex(tmp_path)
    assert problems_at(index, STEPS[step], moment) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_sync_that_compacts_by_itself_may_be_killed_at_any_effect(tmp_path, moment):
    index = CrashIndex(tmp_path, shard_count=1)
    assert problems_at(index, before_nightly_compaction, moment) == []


@pytest.mark.parametrize("step", ["first ingest", "sync", "compaction"])
def test_the_same_holds_on_a_real_disk(tmp_path, step):
    numbers = itertools.count()
    index = CrashIndex(tmp_path, fresh=lambda: LocalWorkspace(tmp_path / str(next(numbers))))
    assert problems_at(index, STEPS[step], "after", every=8) == []


def problems_at(index, prepare, moment, every=1):
    """Kill a run at its effects, one after the other, run it again, and compare."""
    run = prepare(index)
    start = index.save()
    whole = Process()
    run(whole)
    expected = index.state()
    assert litter(index) == set()
    assert index.last_report().problems() == []
    lacking = index.last_report().lacking_records
    problems = []
    for number in dying_at(whole.effects, moment)[every // 2 :: every]:
        index.restore(start)
        dying, living = Process(number, moment), Process()
        assert not lived_through(run, dying)
        run(living)
        wrong = list(complaints(index, expected, lacking, dying, living))
        if wrong:
            problems.append((number, whole.effects[number - 1], wrong))
    return problems


def complaints(index, expected, lacking, dying, living):
    """What differs from a run that nobody killed."""
    state = index.state()
    for name in ("payloads", "vectors", "ledger", "letters", "version", "counts", "alias"):
        if getattr(state, name) != getattr(expected, name):
            yield f"{name}: {getattr(state, name)} instead of {getattr(expected, name)}"
    report = index.last_report()
    if report is None:
        yield "the last run has no report"
    elif report.problems():
        yield report.problems()
    elif report.lacking_records != lacking:
        yield f"{report.lacking_records} records lack instead of {lacking}"
    if litter(index):
        yield f"litter: {litter(index)}"
    wasted = embedded_twice(index, dying, living)
    last = next((e for e in reversed(dying.effects) if e.kind == "embed"), None)
    if wasted and (last is None or sorted(wasted) != sorted(set(last.texts))):
        yield f"embedded twice: {wasted}"


def test_a_dead_process_neither_reads_nor_tidies_up(tmp_path):
    index = CrashIndex(tmp_path)
    index.write(FIRST)
    process = Process(20, "before")
    assert not lived_through(index.ingest, process)
    files = index.paths()
    with index.living(process):
        workspace = workspace_of(index.settings)
        for call in (
            lambda: workspace.create("more", b""),
            lambda: workspace.replace("more", b""),
            lambda: workspace.read("more"),
            lambda: workspace.list("indexes"),
            lambda: workspace.delete(["more"]),
            lambda: store_of(index.settings).count("dying--v1"),
        ):
            with pytest.raises(Crash):
                call()
    assert index.paths() == files
    assert len(process.effects) == 19


def test_a_crash_comes_between_the_parts_of_one_call(tmp_path):
    index = CrashIndex(tmp_path)
    before_sync(index)
    with index.living(Process(2, "after")):
        workspace = workspace_of(index.settings)
        workspace.create("a", b"")
        with pytest.raises(Crash):
            workspace.delete(["a", "b"])
    with index.living(Process(1, "after")):
        store = store_of(index.settings)
        ids = sorted(store.ids("dying--v1"))
        with pytest.raises(Crash):
            store.delete("dying--v1", ids[:5])
    assert sorted(index.store().ids("dying--v1")) == ids[2:]
