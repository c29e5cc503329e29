"""A new version beside the published one, from stored chunks, while syncs of the old one go on."""

from dataclasses import replace

import pytest

from embedmill.assembly import store_of
from embedmill.errors import (
    IndexLockedError,
    RecipeMismatchError,
    RefusedError,
    SourceError,
)
from embedmill.lease import take_lease
from embedmill.manifest import Manifest
from embedmill.testing.crash_points import CrashingEmbedder, Process
from pipelines.run_options import InterruptedRunError

TEXTS = {
    "a": "one two three four five six seven",
    "b": "red green blue",
    "c": "north east south west up down",
}
OTHER = {"kind": "hashing", "dimension": 12}


@pytest.fixture
def index(small_index):
    made = small_index()
    made.ingest(TEXTS)
    return made


def swap(index, embedder=OTHER, **more):
    index.swap(embedder=embedder, **more)


def states(index):
    return [(version.name, version.state) for version in index.manifest.versions]


def found(index, version):
    """Texts that a version's collection holds."""
    store = store_of(index.settings)
    batch = store.fetch(version.collection, sorted(store.ids(version.collection)))
    return sorted(payload["text"] for payload in batch.payloads)


def test_nothing_to_do_is_said_and_changes_nothing(index):
    before = set(index.workspace.files)
    assert index.reembed() is None
    new = {path for path in set(index.workspace.files) - before if "lease" not in path}
    assert new == set()


def test_an_index_that_was_never_published_is_ingested_first(small_index):
    with pytest.raises(RefusedError, match="no published version") as caught:
        small_index().reembed()
    assert "embedmill ingest" in caught.value.hint


def test_another_model_is_built_from_the_stored_chunks_without_the_source(index):
    swap(index)
    for path in index.folder.iterdir():
        path.unlink()
    report = index.reembed()
    assert (report.status, report.documents.read) == ("succeeded", 0)
    assert report.chunks.embedded == report.records.upserted == 5
    assert states(index) == [("v1", "published"), ("v2", "ready")]
    one, two = index.manifest.versions
    assert two.parent == 1
    assert two.collection == "small--v2"
    assert found(index, one) == found(index, two)
    assert store_of(index.settings).alias_target("small") == "small--v1"


def test_another_chunker_is_built_from_the_source(index):
    index.swap(chunker={"kind": "text", "max_tokens": 3})
    report = index.reembed()
    assert report.documents.read == report.documents.added == 3
    assert states(index) == [("v1", "published"), ("v2", "ready")]
    for path in index.folder.iterdir():
        path.unlink()
    index.swap(chunker={"kind": "text", "max_tokens": 2})
    with pytest.raises(SourceError):
        index.reembed()


def test_an_ingest_with_another_recipe_is_refused_and_names_the_way(index):
    swap(index)
    with pytest.raises(RecipeMismatchError, match="dimension: 8 -> 12") as caught:
        index.ingest()
    assert "embedmill reembed" in caught.value.hint
    index.reembed()
    with pytest.raises(RecipeMismatchError) as caught:
        index.ingest()
    assert "embedmill publish 2" in caught.value.hint


def test_syncs_with_the_old_settings_go_on_and_the_build_catches_up(index):
    swap(index)
    index.reembed()
    swap(index, {"kind": "hashing", "dimension": 8})
    index.ingest({**TEXTS, "a": "one two three four and more", "d": "new"})
    swap(index)
    report = index.reembed()
    # "one two three four" of document a has its vector in the new version already.
    assert (report.chunks.embedded, report.chunks.reused) == (2, 1)
    one, two = index.manifest.versions
    assert found(index, one) == found(index, two)
    assert "new" in found(index, two)


def test_what_is_committed_while_a_build_goes_on_is_taken_in(index):
    """A sync commits between two calls of the build; the build ends without lacking it."""
    settings = index.settings
    swap(index)
    synced = []

    def sync(progress):
        if not synced:
            synced.append(True)
            new, index._more = index._more, {}
            try:
                index.ingest({**TEXTS, "d": "while it was built"})
            finally:
                index._more = new

    report = index.reembed(on_progress=sync)
    assert settings.embedder.dimension == 8
    assert report.status == "succeeded"
    one, two = index.manifest.versions
    assert "while it was built" in found(index, two)
    assert found(index, one) == found(index, two)


def test_two_builds_at_once_are_refused_and_a_sync_is_not(index):
    swap(index)
    with take_lease(index.workspace, "small", "reembed", name="build-lease"):
        with pytest.raises(IndexLockedError, match="reembed by process"):
            index.reembed()
        swap(index, {"kind": "hashing", "dimension": 8})
        assert index.ingest({**TEXTS, "d": "x"}).status == "succeeded"


def test_an_interrupted_build_goes_on_and_pays_nothing_twice(small_index):
    index = small_index(run={"segment_chunks": 2})
    texts = {f"doc-{n}": f"text number {n} of {n}" for n in range(20)}
    index.ingest(texts)
    swap(index)
    process = Process()
    index.wrappers["embedder"] = lambda real: CrashingEmbedder(real, process)

    class AfterThree:
        def is_set(self):
            return len(process.effects) >= 3

    with pytest.raises(InterruptedRunError):
        index.reembed(stop=AfterThree())
    assert states(index)[1] == ("v2", "building")
    paid = sum(len(effect.texts) for effect in process.effects)
    assert 0 < paid < 40
    index.reembed()
    assert states(index)[1] == ("v2", "ready")
    assert max(process.embedded().values()) == 1


def test_a_version_that_was_built_before_is_continued_and_not_built_again(index):
    swap(index)
    index.reembed()
    index.publish()
    swap(index, {"kind": "hashing", "dimension": 8})
    report = index.reembed()
    assert report.chunks.chunks == 0
    assert states(index) == [("v1", "ready"), ("v2", "published")]


def test_a_store_with_one_owner_is_left_to_syncs_while_segments_are_embedded(small_index, tmp_path):
    index = small_index(store={"kind": "qdrant_embedded", "path": str(tmp_path / "store")})
    index.ingest(TEXTS)
    swap(index)
    opened = []

    class Watched:
        def __init__(self, real):
            self.recipe = real.recipe
            self._real = real

        def embed(self, texts, role):
            # Somebody else can have the store meanwhile.
            store = store_of(index.settings)
            opened.append(store.count("small--v1"))
            store.close()
            return self._real.embed(texts, role)

    index.wrappers["embedder"] = Watched
    assert index.reembed().status == "succeeded"
    assert opened
    assert set(opened) == {5}


def test_a_text_that_many_documents_share_is_embedded_once(small_index):
    index = small_index(run={"segment_chunks": 2})
    shared = "a sentence of all"
    index.ingest({f"doc-{n}": f"{shared} {n} {n} {n} {n}" for n in range(10)})
    swap(index)
    process = Process()
    index.wrappers["embedder"] = lambda real: CrashingEmbedder(real, process)
    stop = process.effects

    class AfterThree:
        def is_set(self):
            return len(stop) == 3

    with pytest.raises(InterruptedRunError):
        index.reembed(stop=AfterThree())
    report = index.reembed()
    assert process.embedded()[shared] == 1
    assert max(process.embedded().values()) == 1
    assert report.chunks.deduplicated > 0


def test_what_is_superseded_is_not_paid_for(small_index):
    index = small_index(shard_count=1)
    index.ingest({**TEXTS, "x": "one two three four", "y": "one two three four"})
    index.ingest({"a": "entirely other words now", "b": TEXTS["b"], "x": "one two three four"})
    process = Process()
    index.wrappers["embedder"] = lambda real: CrashingEmbedder(real, process)
    swap(index)
    report = index.reembed()
    # Of the first segment's 7 chunks those of a, c and y are nobody's any more; the text of x,
    # which they share, is wanted all the same.
    assert report.chunks.superseded == 2 + 2 + 1
    assert set(process.embedded()) == {
        "one two three four",
        "red green blue",
        "entirely other words now",
    }
    one, two = index.manifest.versions
    assert found(index, one) == found(index, two)
    assert index.publish().switch.changed
    # The counts of later syncs are right as well.
    index.ingest({"b": TEXTS["b"], "x": "other", "new": "lorem ipsum"})
    assert index.ids() == index.expected_ids()


def test_a_compaction_keeps_the_files_that_a_build_that_began_meanwhile_reads(small_index):
    index = small_index(shard_count=1)
    for number in range(4):
        index.ingest({f"doc-{n}": f"text number {n}" for n in range(number + 1)})
    before = {path for path in index.workspace.files if "/chunks/" in path}
    old, began = index._more, []

    def build_begins(path):
        # Right when the snapshot's segment is written, the build commits its version.
        if "/chunks/" in path and path.endswith(".docs.parquet") and not began:
            began.append(path)
            version = replace(
                index.manifest.versions[0],
                number=2,
                state="building",
                published=None,
                collection="small--v2",
                embedding=replace(index.manifest.versions[0].embedding, dimension=12),
            )
            Manifest(index.workspace, "small").commit(version, index.manifest)

    index.workspace.before_create = build_begins
    index.compact()
    index.workspace.before_create = lambda _: None
    assert began
    assert index.chunks.committed_of(0) == [4]
    assert before <= set(index.workspace.files)
    swap(index)
    report = index.reembed()
    assert report.status == "succeeded"
    one, two = index.manifest.versions
    assert found(index, one) == found(index, two) != []
    index.publish()
    # With nobody reading them any more, they go.
    index._more = {**old, "embedder": OTHER}
    index.compact()
    assert not before & set(index.workspace.files)
    assert index.chunks.committed_of(0) == [4]
    assert index.ids() == index.expected_ids()
