"""Copying a version into another store: all of it, nothing embedded, whatever ends it meanwhile."""

import itertools
from dataclasses import replace

import numpy as np
import orjson
import pytest

from embedmill.copying import OtherStore
from embedmill.errors import IndexLockedError, RefusedError, StopRunError
from embedmill.executor import InlineExecutor
from embedmill.lease import take_lease
from embedmill.run_report import read_reports
from embedmill.settings import MemoryStoreSettings, QdrantEmbeddedSettings
from embedmill.testing.counting_store_contract import record_ids, unit_vectors
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.memory import MemoryStore
from pipelines.compact import compact
from pipelines.copy import CopyOptions, copy
from pipelines.run_options import RunOptions

TEXTS = {f"d{number}": f"one two three four five {number} six" for number in range(12)}
_numbers = itertools.count()


def foreign(count):
    return VectorBatch(record_ids(count), unit_vectors(count, dimension=8), [{}] * count)


class Embeddings:
    """Counts texts that are embedded."""

    def __init__(self):
        self.texts = 0

    def __call__(self, real):
        self._real = real
        self.recipe = real.recipe
        return self

    def embed(self, texts, role):
        self.texts += len(texts)
        return self._real.embed(texts, role)


class Copied:
    """A small index and another store for it."""

    def __init__(self, index):
        self.index = index
        self.to = MemoryStoreSettings(kind="memory", name=f"other-{next(_numbers)}")
        self.other = MemoryStore(self.to)
        self.embeddings = Embeddings()
        index.wrappers["embedder"] = self.embeddings

    def copy(self, *, to=None, version=None, overwrite=False, alias=True):
        executor = InlineExecutor()
        clock = self.index.clock
        options = RunOptions(clock=clock, sleep=clock.sleep)
        choices = CopyOptions(version=version, overwrite=overwrite, alias=alias)
        with self.index.seams():
            try:
                return copy(self.index.settings, to or self.to, executor, options, choices)
            finally:
                executor.close()

    def check(self):
        """The other store has what the index' own has, and is what readers see."""
        own, name = MemoryStore(self.index.settings.store), self.index.version.collection
        ids = sorted(own.ids(name))
        assert sorted(self.other.ids(name)) == ids
        mine, theirs = own.fetch(name, ids), self.other.fetch(name, ids)
        assert list(theirs.payloads) == list(mine.payloads)
        np.testing.assert_array_equal(theirs.vectors, mine.vectors)
        assert set(ids) == self.index.expected_ids()
        assert self.other.alias_target("small") == name


@pytest.fixture
def copied(small_index, many_parts):
    return Copied(small_index())


def test_a_copy_holds_every_record_and_embeds_nothing(copied):
    copied.index.ingest(TEXTS)
    embedded = copied.embeddings.texts
    report = copied.copy()
    copied.check()
    assert copied.embeddings.texts == embedded
    assert (report.status, report.pipeline) == ("succeeded", "copy")
    assert report.records.upserted == report.live_records == report.stored_records > 12
    assert [entry[1].pipeline for entry in read_reports(copied.index.workspace, "small")] == [
        "copy",
        "ingest",
    ]


def test_copying_again_writes_what_has_changed_since(copied):
    copied.index.ingest(TEXTS)
    copied.copy()
    assert copied.copy().records.upserted == 0
    changed = {**TEXTS, "d1": "shorter", "new": "seven eight"}
    del changed["d2"]
    copied.index.ingest(changed)
    report = copied.copy()
    copied.check()
    assert 0 < report.records.upserted < 5
    assert report.records.deleted > 0


def test_an_index_that_was_folded_since_is_copied_from_its_snapshot(copied):
    copied.index.ingest(TEXTS)
    copied.copy()
    shorter = {name: text for name, text in TEXTS.items() if name not in {"d1", "d2", "d3"}}
    copied.index.ingest({**shorter, "d4": "changed"})
    with copied.index.seams():
        executor = InlineExecutor()
        assert compact(copied.index.settings, executor, RunOptions()).segments_before
        executor.close()
    copied.copy()
    copied.check()
    copied.index.ingest({**shorter, "d4": "changed again", "d5": "and this"})
    copied.copy()
    copied.check()


def test_the_copy_can_take_the_place_of_the_index_own_store(copied):
    copied.index.ingest(TEXTS)
    copied.copy()
    copied.index._more["store"] = {"kind": "memory", "name": copied.to.name}
    report = copied.index.ingest({**TEXTS, "new": "seven eight"})
    assert report.documents.added == 1
    assert copied.index.ids() == copied.index.expected_ids()


class Dying:
    """Dies at the n-th change of the store or of the workspace: before or right after it."""

    def __init__(self, index, moment):
        self._index, self._moment, self._changes = index, moment, itertools.count()
        index.wrappers["store"] = lambda real: DyingStore(real, self.change)
        index.workspace.before_create = self.change

    def change(self, *_):
        if next(self._changes) == self._moment:
            raise KeyboardInterrupt

    def end(self):
        del self._index.wrappers["store"]
        self._index.workspace.before_create = lambda _: None


class DyingStore:
    def __init__(self, real, change):
        self.real, self.change = real, change

    def __getattr__(self, name):
        return getattr(self.real, name)

    def upsert(self, *arguments):
        self.change()
        done = self.real.upsert(*arguments)
        self.change()
        return done

    def set_alias(self, *arguments):
        self.change()
        self.real.set_alias(*arguments)
        self.change()


@pytest.mark.parametrize("moment", range(0, 60, 3))
def test_a_copy_that_is_killed_goes_on_where_it_stopped(copied, moment):
    copied.index.ingest(TEXTS)
    dying = Dying(copied.index, moment)
    try:
        copied.copy()
        assert moment > 20
    except KeyboardInterrupt:
        pass
    dying.end()
    copied.copy()
    copied.check()


def test_what_is_wrong_in_the_copy_is_put_right(copied):
    copied.index.ingest(TEXTS)
    copied.copy()
    name = copied.index.version.collection
    ids = sorted(copied.other.ids(name))
    copied.other.delete(name, ids[:2])
    copied.other.upsert(name, foreign(1))
    copied.copy()
    copied.check()


def test_a_collection_that_is_not_a_copy_is_left_alone_unless_told(copied):
    copied.index.ingest(TEXTS)
    name = copied.index.version.collection
    copied.other.create_collection(name, CollectionSpec(8, "cosine", normalised=True))
    copied.other.upsert(name, foreign(3))
    with pytest.raises(RefusedError) as refused:
        copied.copy()
    assert refused.value.code == "foreign-records"
    assert "--overwrite" in refused.value.hint
    assert copied.other.count(name) == 3
    copied.copy(overwrite=True)
    copied.check()


def test_records_that_the_other_store_refuses_are_counted_and_no_letters(copied, monkeypatch):
    copied.index.ingest(TEXTS)
    sizes = sorted(len(orjson.dumps(payload)) for payload in copied.index.payloads())
    strict = replace(MemoryStore.limits, payload_bytes=sizes[-1] - 1)
    monkeypatch.setattr(MemoryStore, "limits", strict)
    report = copied.copy()
    assert report.status == "partial"
    assert report.records.rejected == sizes.count(sizes[-1])
    assert report.records.rejected + report.records.upserted == len(sizes)
    assert report.stored_records == report.records.upserted
    assert copied.index.letters() == []
    listed = listed_by(copied, report)
    assert len(listed) == report.records.rejected
    assert all(row["code"] == "payload-too-large" for row in listed)
    # They have none after another copy either, which writes nothing.
    again = copied.copy()
    assert (again.status, again.records.upserted) == ("partial", 0)
    assert listed_by(copied, again) == listed
    # A document that is gone lacks nothing.
    lost = {row["doc_id"] for row in listed}
    copied.index.ingest({name: text for name, text in TEXTS.items() if name not in lost})
    assert copied.copy().status == "succeeded"


def listed_by(copied, report):
    files = copied.index.workspace.files
    lines = files[f"indexes/small/runs/{report.run}/not-copied.jsonl"].splitlines()
    return [orjson.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda copied: copied.copy(to=copied.index.settings.store), "refused"),
        (lambda copied: copied.copy(version=7), "refused"),
    ],
)
def test_what_cannot_be_copied_is_refused(copied, make, code):
    copied.index.ingest(TEXTS)
    with pytest.raises(RefusedError) as refused:
        make(copied)
    assert refused.value.code == code


def test_an_index_without_versions_or_with_work_left_is_refused(copied):
    with pytest.raises(RefusedError, match="no versions"):
        copied.copy()
    copied.index.ingest(TEXTS)
    gone = next(path for path in copied.index.workspace.files if "/vectors/" in path)
    del copied.index.workspace.files[gone]
    with pytest.raises(RefusedError, match="1 segment of this version has no vectors"):
        copied.copy()


def test_an_index_that_a_run_holds_is_not_copied(copied):
    copied.index.ingest(TEXTS)
    with take_lease(copied.index.workspace, "small", "ingest"), pytest.raises(IndexLockedError):
        copied.copy()


def test_a_copy_that_the_store_does_not_keep_fails(copied):
    copied.index.ingest(TEXTS)

    class Forgetful(MemoryStore):
        def upsert(self, collection, batch):
            return super().upsert(collection, batch.take(range(len(batch.ids) - 1)))

    copied.index.wrappers["store"] = lambda _: Forgetful(copied.to)
    with pytest.raises(StopRunError) as failed:
        copied.copy()
    assert failed.value.code == "counts-mismatch"
    _, report = next(read_reports(copied.index.workspace, "small"))
    assert (report.status, report.pipeline) == ("failed", "copy")


def test_a_store_is_known_by_its_address_alone(tmp_path):
    one = OtherStore.of(QdrantEmbeddedSettings(kind="qdrant_embedded", path=str(tmp_path)))
    same = OtherStore.of(QdrantEmbeddedSettings(kind="qdrant_embedded", path=f"{tmp_path}/x/.."))
    other = OtherStore.of(QdrantEmbeddedSettings(kind="qdrant_embedded", path=f"{tmp_path}/y"))
    assert one == same
    assert one.id != other.id
    assert str(one) == f"qdrant_embedded at {tmp_path}"


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (ZeroDivisionError(), "failed")]
)
def test_a_copy_that_ends_by_a_bug_or_at_a_key_leaves_a_report(copied, monkeypatch, error, status):
    def count(*_):
        raise error

    copied.index.ingest(TEXTS)
    monkeypatch.setattr(MemoryStore, "count", count)
    with pytest.raises(type(error)):
        copied.copy()
    _run, report = next(read_reports(copied.index.workspace, "small"))
    assert (report.pipeline, report.status) == ("copy", status)
