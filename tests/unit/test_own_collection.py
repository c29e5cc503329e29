"""Collections of the index's own store: what others have put there is left alone."""

import pytest

from embedmill.assembly import store_of
from embedmill.errors import RefusedError
from embedmill.executor import InlineExecutor
from embedmill.testing.memory_workspace import MemoryWorkspace
from pipelines.audit import audit
from pipelines.prune import prune, retire
from pipelines.run_options import RunOptions

OURS = {f"d{n}": f"ours {n}" for n in range(6)}
THEIRS = {f"t{n}": f"theirs {n}" for n in range(3)}


@pytest.fixture
def index(small_index):
    made = small_index()
    made.ingest(OURS)
    return made


def records(index, collection):
    return set(store_of(index.settings).ids(collection))


def audited(index, **choices):
    with index.seams():
        return audit(index.settings, RunOptions(clock=index.clock), **choices)


def test_an_index_of_the_same_name_in_another_workspace_does_not_write_into_ours(index):
    before = records(index, "small--v1")
    index.workspace = MemoryWorkspace()
    with pytest.raises(RefusedError, match="has 6 records that this index has not put") as refused:
        index.ingest(THEIRS)
    assert "give this index another name" in refused.value.hint
    assert records(index, "small--v1") == before
    # The reports of its failure say nothing else, and trying again changes nothing.
    with pytest.raises(RefusedError, match="has not put there"):
        index.ingest(THEIRS)
    assert records(index, "small--v1") == before


def test_nor_where_its_vectors_are_of_another_kind(index):
    index.workspace = MemoryWorkspace()
    index.swap(embedder={"kind": "hashing", "dimension": 16})
    with pytest.raises(RefusedError, match="made for dimension 8") as refused:
        index.ingest(THEIRS)
    assert "embedmill retire 1 -c SETTINGS" in refused.value.hint


def test_a_repair_deletes_no_records_of_another_workspace(index):
    before = records(index, "small--v1")
    index.workspace = MemoryWorkspace()
    with pytest.raises(RefusedError):
        index.ingest(THEIRS)
    with pytest.raises(RefusedError, match="has 6 records that this index has not put"):
        audited(index, repair=True)
    assert records(index, "small--v1") == before


def test_what_was_left_to_another_workspace_is_not_pruned(index):
    before, theirs = records(index, "small--v1"), MemoryWorkspace()
    index.workspace = theirs
    with pytest.raises(RefusedError):
        index.ingest(THEIRS)
    with index.seams():
        retire(index.settings, 1)
    with pytest.raises(RefusedError, match="never published"):
        index.ingest(THEIRS)
    index.publish(2)
    for dry_run in (True, False):
        with index.seams():
            done = prune(index.settings, RunOptions(clock=index.clock), number=1, dry_run=dry_run)
        assert done.not_ours == {1}
        assert records(index, "small--v1") == before


def test_what_others_fill_under_the_name_of_what_was_pruned_stays(index):
    index.swap(embedder={"kind": "hashing", "dimension": 16})
    index.reembed()
    index.publish()
    with index.seams():
        done = prune(index.settings, RunOptions(clock=index.clock), number=1)
    assert (done.not_ours, store_of(index.settings).collections()) == (set(), ["small--v2"])
    ours, index.workspace = index.workspace, MemoryWorkspace()
    with pytest.raises(RefusedError, match="never published"):
        index.ingest(THEIRS)
    index.workspace = ours
    with index.seams():
        prune(index.settings, RunOptions(clock=index.clock))
    assert len(records(index, "small--v1")) == len(THEIRS)


def test_versions_of_an_earlier_release_have_no_note_and_are_pruned(index):
    index.swap(embedder={"kind": "hashing", "dimension": 16})
    index.reembed()
    index.publish()
    for path in [path for path in index.workspace.files if "/copies/" in path]:
        del index.workspace.files[path]
    with index.seams():
        prune(index.settings, RunOptions(clock=index.clock), number=1)
    assert store_of(index.settings).collections() == ["small--v2"]
    assert not [path for path in index.workspace.files if "/copies/" in path]


@pytest.mark.parametrize("dimension", [8, 16])
def test_what_a_lost_workspace_has_left_makes_room_as_the_message_says(index, dimension):
    before = records(index, "small--v1")
    index.workspace = MemoryWorkspace()
    index.swap(embedder={"kind": "hashing", "dimension": dimension})
    with pytest.raises(RefusedError):
        index.ingest()
    with index.seams():
        retire(index.settings, 1)
    with pytest.raises(RefusedError, match="never published") as refused:
        index.ingest()
    assert "embedmill publish 2 -c SETTINGS" in refused.value.hint
    store = store_of(index.settings)
    assert store.alias_target("small") == "small--v1"
    done = index.publish(2).switch
    assert (done.changed, done.alias_moved) == (False, True)
    assert store.alias_target("small") == "small--v2"
    assert records(index, "small--v2") == index.expected_ids()
    assert records(index, "small--v1") == before


def test_a_first_run_that_died_after_its_first_write_goes_on(small_index):
    index = small_index()
    index.write(OURS)

    class Dies(InlineExecutor):
        def submit(self, *arguments, **named):
            if store_of(index.settings).collections() and index.ids():
                raise KeyboardInterrupt
            return super().submit(*arguments, **named)

    with pytest.raises(KeyboardInterrupt):
        index.ingest(executor=Dies())
    # As if the process had died between the store's answer and the note of it.
    for path in [path for path in index.workspace.files if "/applied/" in path]:
        del index.workspace.files[path]
    assert index.ids()
    assert index.ingest(take_over=True).stored_records == len(OURS)


def test_an_index_of_an_earlier_release_has_no_note_and_goes_on(index):
    for path in [path for path in index.workspace.files if "/copies/" in path]:
        del index.workspace.files[path]
    assert index.ingest({**OURS, "new": "one more"}).stored_records == len(OURS) + 1


def test_a_collection_that_is_lost_is_not_made_anew_empty(index):
    store = store_of(index.settings)
    store.set_alias("small", "small--v1")
    store._contents.aliases.clear()
    store.drop_collection("small--v1")
    for look in (index.ingest, lambda: audited(index)):
        with pytest.raises(RefusedError, match="no collection 'small--v1'") as refused:
            look()
        assert "embedmill audit --repair" in refused.value.hint
        assert store.collections() == []
    assert audited(index, repair=True).counts == {"missing": len(OURS)}
    assert records(index, "small--v1") == index.expected_ids()
    assert not index.ingest().changed_anything


def test_a_version_that_nobody_reads_is_filled_again_as_the_message_says(index):
    index.swap(embedder={"kind": "hashing", "dimension": 16})
    index.reembed()
    store_of(index.settings).drop_collection("small--v2")
    with pytest.raises(RefusedError, match="no collection 'small--v2'") as refused:
        index.reembed()
    assert "indexes/small/applied/small--v2" in refused.value.hint
    for path in [path for path in index.workspace.files if "/applied/small--v2/" in path]:
        del index.workspace.files[path]
    report = index.reembed()
    assert (report.chunks.embedded, report.stored_records) == (0, len(OURS))
