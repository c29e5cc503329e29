"""Applying several segments in one call: confirmed together, recorded afterwards."""

import itertools
from contextlib import contextmanager

import pytest

from embedmill.applied_layer import AppliedLayer
from embedmill.applying import SegmentApplier
from embedmill.errors import DamagedFileError, StopRunError
from embedmill.segment import SegmentKey
from embedmill.settings import MemoryStoreSettings
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.memory import MemoryStore

_numbers = itertools.count()


def many_segments(small_index):
    """An index of one shard, four segments of a document of two chunks each."""
    index = small_index(
        chunker={"kind": "text", "max_tokens": 2}, shard_count=1, run={"segment_chunks": 2}
    )
    index.ingest({f"doc{n}": f"one {n}\n\ntwo {n}" for n in range(4)})
    return index, [SegmentKey(0, number) for number in index.chunks.committed()[0]]


def applier_of(index, store, collection, **more):
    store.create_collection(collection, CollectionSpec(8, "cosine", normalised=True))
    applied = AppliedLayer(index.workspace, "small", collection)
    values = {"now": lambda: "now", "run": "mine", "bury": lambda *_: None, **more}
    return SegmentApplier(
        index.chunks, index.vectors, applied, store, collection, **values
    ), applied


def a_store():
    return MemoryStore(MemoryStoreSettings(kind="memory", name=f"together-{next(_numbers)}"))


class ConfirmingStore(MemoryStore):
    """Confirms what a block has written at its end, or cannot."""

    def __init__(self, log, error=None):
        super().__init__(MemoryStoreSettings(kind="memory", name=f"together-{next(_numbers)}"))
        self.log, self.error = log, error

    def upsert(self, collection, batch):
        self.log.append(f"write {len(batch.ids)}")
        return super().upsert(collection, batch)

    @contextmanager
    def confirmed_together(self, collection):
        yield
        if self.error is not None:
            raise self.error
        self.log.append(f"confirm {collection}")


def test_segments_of_one_call_are_recorded_when_all_of_them_are_confirmed(small_index):
    index, keys = many_segments(small_index)
    log = []
    applier, applied = applier_of(index, ConfirmingStore(log), "other")
    index.workspace.before_create = lambda path: log.append(f"record {path[-7:-5]}")
    done = applier.apply_all(keys, None)
    assert log == [
        *["write 2"] * 4,
        "confirm other",
        *[f"record {key.number:02}" for key in keys],
    ]
    assert done.failure is None
    assert [counts.upserted for counts in done.counts] == [2, 2, 2, 2]
    assert [applied.read(key).records for key in keys] == [2, 4, 6, 8]


def test_what_cannot_be_confirmed_is_not_recorded(small_index):
    index, keys = many_segments(small_index)
    store = ConfirmingStore([], StopRunError("the disk is full"))
    applier, applied = applier_of(index, store, "other")
    with pytest.raises(StopRunError, match="disk is full"):
        applier.apply_all(keys, None)
    assert applied.committed() == {}
    store.error = None
    assert len(applier.apply_all(keys, None).counts) == 4


def test_what_went_before_a_failure_is_confirmed_and_recorded(small_index):
    index, keys = many_segments(small_index)
    log = []
    applier, applied = applier_of(index, ConfirmingStore(log), "other")
    index.vectors.delete([keys[2]])
    done = applier.apply_all(keys, None)
    assert [counts.upserted for counts in done.counts] == [2, 2]
    assert isinstance(done.failure, DamagedFileError)
    assert log == ["write 2", "write 2", "confirm other"]
    assert applied.committed() == {0: [0, 1]}
    with pytest.raises(DamagedFileError):
        applier.apply_all(keys[2:], 1)


def test_a_segment_with_a_document_of_an_earlier_one_is_left_to_the_next_call(small_index):
    index, _ = many_segments(small_index)
    index.ingest(
        {f"doc{n}": f"one {n}\n\nthree {n}\n\ntwo {n}" for n in (0, 1)}
        | {f"doc{n}": f"one {n}\n\ntwo {n}" for n in (2, 3)}
    )
    keys = [SegmentKey(0, number) for number in index.chunks.committed()[0]]
    assert len(keys) > 4
    applier, applied = applier_of(index, a_store(), "other")
    assert len(applier.apply_all(keys, None).counts) == 4
    assert len(applier.apply_all(keys[4:], 3).counts) == len(keys) - 4
    assert applied.read(keys[-1]).records == 10


def test_a_call_that_takes_long_begins_no_further_segment(small_index, clock):
    index, keys = many_segments(small_index)
    clock.per_look = 0.6
    applier, _ = applier_of(index, a_store(), "other", clock=clock)
    done = applier.apply_all(keys, None)
    assert 1 <= len(done.counts) < 4
    assert done.failure is None
