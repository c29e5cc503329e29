"""Publishing and rolling back: one step for readers, whatever happens around it."""

import json
import sys
import threading

import pytest

from embedmill.assembly import store_of
from embedmill.errors import (
    IndexLockedError,
    ManifestConflictError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.gate import GateResult
from embedmill.lease import take_lease
from embedmill.manifest import Manifest
from embedmill.publishing import mirror, switch
from embedmill.run_report import read_reports
from pipelines.cli_options import version_number
from pipelines.prune import prune
from pipelines.run_options import RunOptions

TEXTS = {"a": "one two three", "b": "red green blue"}
OLD, NEW = ({"kind": "hashing", "dimension": n} for n in (8, 12))


@pytest.fixture
def index(small_index):
    """Version 1 is published, version 2 is ready; the settings ask for version 2."""
    made = small_index()
    made.ingest(TEXTS)
    made.swap(embedder=NEW)
    made.reembed()
    return made


def states(index):
    return [version.state for version in index.manifest.versions]


def alias(index):
    return store_of(index.settings).alias_target("small")


def test_readers_are_sent_to_the_version_that_the_settings_ask_for(index):
    done = index.publish()
    assert (done.switch.before.number, done.switch.after.number, done.lacking) == (1, 2, 0)
    assert states(index) == ["retired", "published"]
    assert alias(index) == "small--v2"
    # A plain ingest goes on with it.
    report = index.ingest({**TEXTS, "c": "more"})
    assert (report.version, report.documents.added) == ("v2", 1)


def test_who_published_when_and_in_which_run_is_recorded(index):
    done = index.publish()
    one, two = index.manifest.versions
    assert [line["event"] for line in one.history] == ["begun", "published", "retired"]
    assert [line["event"] for line in two.history] == ["begun", "ready", "published"]
    assert two.history[-1]["run"] == done.run
    assert two.history[-1]["by"].count(" on ") == 1
    assert one.retired == two.published == two.history[-1]["at"]
    run, report = next(read_reports(index.workspace, "small"))
    assert (run, report.pipeline, report.status) == (done.run, "publish", "succeeded")


def test_publishing_again_changes_nothing_but_a_mirror_that_lags(index):
    index.publish()
    number = index.manifest.number
    store_of(index.settings).set_alias("small", "small--v1")
    done = index.publish()
    assert not done.switch.changed
    assert alias(index) == "small--v2"
    assert index.manifest.number == number


def lose_newest_commits(index, count):
    """As a copy of the workspace of some time ago has them."""
    paths = sorted(e.path for e in index.workspace.list("indexes/small/manifest"))
    index.workspace.delete([*paths[-count:], "indexes/small/manifest-copy.json"])


def test_a_publication_whose_commit_is_lost_is_no_step_back_for_readers(index):
    index.publish()
    newest = max(e.path for e in index.workspace.list("indexes/small/manifest"))
    index.workspace.delete([newest])
    assert index.ingest().version == "v2"
    assert (states(index), alias(index)) == (["retired", "published"], "small--v2")


@pytest.mark.parametrize("known", [True, False])
def test_a_sync_takes_no_readers_from_where_its_manifest_never_sent_them(index, known):
    index.publish()
    index.swap(embedder=OLD)
    lose_newest_commits(index, 1 if known else 3)
    with pytest.raises(RefusedError, match="'small--v2', which this workspace has never") as caught:
        index.ingest()
    assert "embedmill publish 1 -c SETTINGS" in caught.value.hint
    with pytest.raises(RefusedError, match="has never published"), index.seams():
        prune(index.settings, RunOptions(sleep=index.clock.sleep))
    assert alias(index) == "small--v2"
    # Whoever knows better says so.
    index.publish(1)
    assert alias(index) == "small--v1"
    assert index.ingest().status == "succeeded"


def test_a_version_that_the_manifest_forgot_is_not_begun_over_its_records(index):
    lose_newest_commits(index, 2)
    with pytest.raises(RefusedError, match="the manifest of index 'small' does not know v2") as why:
        index.reembed()
    assert why.value.code == "manifest-lost"
    assert "delete indexes/small/applied/small--v2" in why.value.hint
    paths = [e.path for e in index.workspace.list("indexes/small/applied/small--v2")]
    index.workspace.delete(paths)
    store_of(index.settings).drop_collection("small--v2")
    report = index.reembed()
    assert (report.version, report.stored_records) == ("v2", 2)


def test_what_syncs_brought_since_is_taken_in_before(index):
    index.swap(embedder=OLD)
    index.ingest({**TEXTS, "c": "more"})
    index.swap(embedder=NEW)
    assert index.publish().switch.changed
    assert store_of(index.settings).count("small--v2") == 3


def test_a_version_that_lacks_something_is_refused_with_other_settings(index):
    index.swap(embedder=OLD)
    index.ingest({**TEXTS, "c": "more"})
    with pytest.raises(RefusedError, match="v2 lacks 1 segment to embed") as caught:
        index.publish(2)
    assert "embedmill reembed" in caught.value.hint
    assert states(index) == ["published", "ready"]
    assert next(read_reports(index.workspace, "small"))[1].pipeline == "ingest"


def test_nothing_is_published_while_a_sync_runs(index):
    with take_lease(index.workspace, "small", "ingest"), pytest.raises(IndexLockedError):
        index.publish()
    assert states(index) == ["published", "ready"]


def test_a_collection_that_is_gone_is_found_out_before_readers_are_sent_there(index):
    store_of(index.settings).drop_collection("small--v2")
    with pytest.raises(RefusedError, match="no collection 'small--v2'"):
        index.publish()
    assert states(index) == ["published", "ready"]
    assert alias(index) == "small--v1"


@pytest.mark.parametrize("state", ["building", "failed"])
def test_a_version_that_is_not_complete_is_refused(index, state):
    from dataclasses import replace

    Manifest(index.workspace, "small").amend(2, lambda v: replace(v, state=state))
    with pytest.raises(RefusedError, match=f"v2 is {state}"):
        index.publish(2)


def test_without_a_version_that_is_ready_it_says_how_to_build_one(small_index):
    index = small_index()
    index.ingest(TEXTS)
    index.swap(embedder=NEW)
    with pytest.raises(RefusedError, match="no version that is ready") as caught:
        index.publish()
    assert "embedmill reembed" in caught.value.hint


def test_rolling_back_takes_readers_to_the_version_before(index):
    index.publish()
    done = index.rollback()
    assert (done.switch.before.number, done.switch.after.number) == (2, 1)
    assert states(index) == ["published", "retired"]
    assert alias(index) == "small--v1"
    assert index.manifest.published.history[-1]["event"] == "restored"
    assert index.manifest.version(2).history[-1]["event"] == "rolled-back"


def test_rolling_back_twice_goes_no_further_and_a_version_may_be_named(index):
    index.publish()
    index.rollback()
    again = index.rollback()
    assert (again.switch.changed, again.switch.after.number) == (False, 1)
    assert index.rollback(2).switch.after.number == 2
    assert alias(index) == "small--v2"
    assert not index.rollback().switch.changed
    assert index.rollback(1).switch.changed
    assert index.publish().switch.after.number == 2
    assert index.rollback().switch.after.number == 1


def test_there_is_no_way_back_to_what_readers_were_taken_away_from(index):
    index.publish()
    index.rollback()
    index.swap(embedder={"kind": "hashing", "dimension": 10})
    index.reembed()
    index.publish()
    with index.seams():
        prune(index.settings, RunOptions(), number=1)
    # Of those that are left, v2 was found wanting; by its number it can be had.
    with pytest.raises(RefusedError, match="no earlier version"):
        index.rollback()
    assert index.rollback(2).switch.after.number == 2


def test_rolling_back_waits_for_neither_sync_nor_build(index):
    index.publish()
    with (
        take_lease(index.workspace, "small", "ingest"),
        take_lease(index.workspace, "small", "reembed", name="build-lease"),
    ):
        assert index.rollback().switch.after.number == 1


def test_what_the_version_lacks_after_a_rollback_is_said_and_taken_in_by_its_next_sync(index):
    index.publish()
    index.ingest({**TEXTS, "c": "more"})
    assert index.rollback().lacking == 1
    index.swap(embedder=OLD)
    report = index.ingest()
    assert (report.version, report.chunks.embedded, report.documents.unchanged) == ("v1", 1, 3)
    assert store_of(index.settings).count("small--v1") == 3


def test_a_damaged_ledger_stands_in_no_way_back(index, caplog):
    index.publish()
    index.ingest({**TEXTS, **{f"more {n}": f"{n} more" for n in range(20)}})
    paths = [entry.path for entry in index.workspace.list("indexes/small/chunks")]
    second = min(path for path in paths if path.endswith("/00000001.docs.parquet"))
    lost = second.replace("00000001", "00000000")
    index.workspace.delete([lost])
    done = index.rollback()
    assert (done.switch.after.number, alias(index)) == (1, "small--v1")
    assert f"what v1 lacks is not known: {index.workspace.url}/{lost}" in caplog.text


def test_there_is_no_way_back_where_nothing_was_before(index):
    with pytest.raises(RefusedError, match="no earlier version"):
        index.rollback()
    with pytest.raises(RefusedError, match="v2 was never published"):
        index.rollback(2)


def test_a_sync_that_ends_after_a_publication_does_not_take_it_back(index):
    """It began with version 1 published, and another version is when it records its counts."""
    index.swap(embedder=OLD)

    def publish(progress):
        if not progress.scanning and states(index)[1] == "ready":
            manifest = Manifest(index.workspace, "small")
            switch(manifest, 2, arrival="published", at="now", by="me", run="r")
            mirror(manifest, store_of(index.settings), "small")

    report = index.ingest({**TEXTS, "c": "more"}, on_progress=publish)
    assert report.status == "succeeded"
    assert states(index) == ["retired", "published"]
    assert index.manifest.versions[0].counts["documents"] == 3
    assert alias(index) == "small--v2"


def test_a_mirror_that_lags_is_repaired_by_the_next_sync(index):
    index.publish()
    store_of(index.settings).set_alias("small", "small--v1")
    index.ingest()
    assert alias(index) == "small--v2"


class Overtaken:
    """A store in which somebody else publishes between our looking and our pointing."""

    def __init__(self, real, overtake):
        self._real = real
        self._overtake = overtake

    def __getattr__(self, name):
        return getattr(self._real, name)

    def set_alias(self, alias, collection):
        if self._overtake:
            self._overtake.pop()()
        self._real.set_alias(alias, collection)


def test_of_two_publications_at_once_the_alias_shows_the_later(index):
    manifest = Manifest(index.workspace, "small")

    def other():
        switch(manifest, 1, arrival="restored", at="later", by="other", run="r2")
        mirror(manifest, store_of(index.settings), "small")

    switch(manifest, 2, arrival="published", at="now", by="me", run="r1")
    mirror(manifest, Overtaken(store_of(index.settings), [other]), "small")
    assert manifest.read().published.number == 1
    assert alias(index) == "small--v1"


def test_an_alias_that_cannot_be_moved_is_reported_and_the_next_try_moves_it(index):
    class Stuck(Overtaken):
        def set_alias(self, alias, collection):
            raise TransientError("the store is away")

    index.wrappers["store"] = lambda real: Stuck(real, [])
    with pytest.raises(StopRunError, match="v2 is published, but the store's alias") as caught:
        index.publish()
    assert "same command again" in caught.value.hint
    assert states(index) == ["retired", "published"]
    index.wrappers.clear()
    assert not index.publish().switch.changed
    assert alias(index) == "small--v2"


def test_of_many_who_change_the_manifest_at_once_nobody_is_lost(index):
    manifest = Manifest(index.workspace, "small")

    def note(number):
        manifest.amend(2, lambda v: v.noted("seen", at="now", by=f"number {number}"))

    threads = [threading.Thread(target=note, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    events = [line["event"] for line in index.manifest.version(2).history]
    assert events.count("seen") == 12


def test_who_is_overtaken_every_time_says_so(index):
    manifest = Manifest(index.workspace, "small")
    other = Manifest(index.workspace, "small")

    def overtaken(version):
        other.commit(version.noted("other", at="now", by="other"), other.read())
        return version.noted("mine", at="now", by="me")

    with pytest.raises(ManifestConflictError):
        manifest.amend(2, overtaken)


@pytest.mark.parametrize(("text", "number"), [("2", 2), ("v2", 2), (None, None)])
def test_a_version_may_be_written_either_way(text, number):
    assert version_number(text) == number


@pytest.mark.parametrize("text", ["v0", "two", "-1", "index.yaml"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(RefusedError, match="is no version"):
        version_number(text)


def gate(name, word):
    return GateResult(name, word, {"share": 0.1}, {"least": 0.5}, f"{name} {word}")


def test_what_the_gates_say_is_recorded_and_lets_the_version_through(index):
    asked = []

    def gates(settings, candidate, published, store):
        asked.append((candidate.number, published.number, store.count(candidate.collection)))
        return (gate("one", "passed"), gate("two", "not-applicable"))

    done = index.publish(gates=gates)
    assert asked == [(2, 1, 2)]
    assert [result.name for result in done.gates] == ["one", "two"]
    assert [line["name"] for line in index.manifest.version(2).gates] == ["one", "two"]
    # Published already: nothing is asked again.
    index.publish(gates=gates)
    assert len(asked) == 1


def test_a_version_that_fails_a_gate_is_refused_unless_it_is_forced(index, tmp_path):
    target = tmp_path / "event.json"
    code = f"import sys, pathlib; pathlib.Path({str(target)!r}).write_text(sys.stdin.read())"
    hook = {"kind": "command", "command": [sys.executable, "-c", code]}
    index.swap(hooks=[hook])

    def gates(*_):
        return (gate("one", "passed"), gate("two", "failed"))

    with pytest.raises(RefusedError, match="does not pass 1 of 2 gates") as caught:
        index.publish(gates=gates)
    assert "two: two failed" in str(caught.value)
    assert "--force" in caught.value.hint
    assert states(index) == ["published", "ready"]
    assert alias(index) == "small--v1"
    assert index.manifest.version(2).gates[1]["figures"] == {"share": 0.1}
    assert next(read_reports(index.workspace, "small"))[1].status == "failed"
    event = json.loads(target.read_text())
    assert (event["event"], event["version"]["number"]) == ("failed", 2)
    assert "two failed" in event["reason"]
    done = index.publish(gates=gates, force=True)
    assert done.switch.changed
    assert json.loads(target.read_text())["event"] == "published"


def test_the_real_gates_let_a_healthy_version_through_and_stop_a_broken_one(small_index):
    from embedmill.gates.run import run_gates

    words = ["red", "green", "blue", "black", "white", "pink", "grey", "brown", "gold", "silver"]
    texts = {f"d{n}": f"{words[n % 10]} {words[n // 10]} item{n}" for n in range(60)}
    index = small_index(embedder={"kind": "hashing", "dimension": 64})
    index.ingest(texts)
    index.swap(embedder={"kind": "hashing", "dimension": 96})

    class Broken:
        """Every text has the same vector."""

        def __init__(self, real):
            self.recipe = real.recipe
            self._real = real

        def embed(self, texts, role):
            embedded = self._real.embed(texts, role)
            embedded.vectors[:] = embedded.vectors[0]
            return embedded

    index.wrappers["embedder"] = Broken
    index.reembed()
    index.wrappers.clear()
    with pytest.raises(RefusedError, match="does not pass"):
        index.publish(gates=run_gates)
    assert index.manifest.published.number == 1
    index.swap(embedder={"kind": "hashing", "dimension": 80})
    index.reembed()
    done = index.publish(gates=run_gates)
    assert done.switch.after.number == 3
    assert len(index.manifest.version(3).gates) > 5
