"""Reads of Pinecone lag behind writes: what is waited for, and for how long."""

import dataclasses

import pytest

pytest.importorskip("pinecone")

from pinecone_rig import INDEX, FakeClock, rigs

from embedmill.errors import TransientError
from embedmill.testing.counting_store_contract import a_batch, record_ids, unit_vectors


@pytest.fixture
def lagging(monkeypatch):
    """A server whose lag is in the time that its stores sleep through."""
    with rigs(monkeypatch) as make:

        def make_lagging(**options):
            clock = FakeClock()
            rig = make(clock=clock, **options)
            rig.clock = clock
            return rig

        yield make_lagging


def test_a_search_waits_for_the_writes_of_its_own_process_alone(lagging):
    rig = lagging(index_lag_s=3.0)
    store = rig.with_notes(time=rig.clock)
    reader = rig.store(time=rig.clock)
    reader.search("notes", unit_vectors(1)[0], 1)
    written_at = rig.clock.now
    store.upsert("notes", a_batch(3))
    assert reader.search("notes", unit_vectors(1)[0], 1) == []
    assert rig.clock.now == written_at
    assert len(store.search("notes", unit_vectors(1)[0], 3)) == 3
    assert 3.0 <= rig.clock.now - written_at < 5.0


def test_a_count_waits_for_everybodys_writes(lagging):
    rig = lagging(index_lag_s=3.0, stats_lag_s=1.0)
    store = rig.with_notes(time=rig.clock)
    other = rig.store(time=rig.clock, count_settles_s=2.0)
    store.upsert("notes", a_batch(7))
    assert other.count("notes") == 7
    assert set(other.ids("notes")) == set(record_ids(7))
    assert len(other.fetch("notes", record_ids(7)).ids) == 7


def test_overwriting_and_deleting_at_once_leave_the_right_count(lagging):
    rig = lagging(index_lag_s=3.0, stats_lag_s=1.0)
    store = rig.with_notes(time=rig.clock, count_settles_s=2.0)
    store.upsert("notes", a_batch(10))
    assert store.count("notes") == 10
    # Five go, five come: the number says nothing about who is seen.
    store.delete("notes", record_ids(5))
    store.upsert("notes", a_batch(5, payloads=[{"new": True}] * 5))
    assert store.count("notes") == 10
    assert store.fetch("notes", record_ids(5)).payloads == [{"new": True}] * 5


def test_a_write_that_is_never_seen_is_not_waited_for_for_ever(lagging):
    rig = lagging(index_lag_s=3.0)
    store = rig.with_notes(time=rig.clock, consistency_timeout_s=60.0)
    namespace = rig.server.indexes[INDEX].namespaces["notes"]
    namespace.options = dataclasses.replace(namespace.options, index_lag_s=1e9)
    store.upsert("notes", a_batch(1))
    started = rig.clock.now
    with pytest.raises(TransientError, match="notes") as trouble:
        store.count("notes")
    assert trouble.value.code == "not-consistent"
    assert 60.0 <= rig.clock.now - started < 65.0


def test_a_listing_that_lags_behind_the_count_is_not_taken_for_all(lagging):
    rig = lagging()
    store = rig.with_notes(time=rig.clock)
    store.upsert("notes", a_batch(3))
    listing = store.ids("notes")
    store.upsert("notes", a_batch(5))
    with pytest.raises(TransientError, match="5 ids, its count is 3"):
        list(listing)


def test_without_positions_a_count_must_stand_still(lagging):
    rig = lagging(index_lag_s=3.0, stats_lag_s=1.0, lsn_headers=False)
    store = rig.with_notes(time=rig.clock, count_settles_s=5.0)
    store.upsert("notes", a_batch(7))
    assert store.count("notes") == 7
    assert len(store.fetch("notes", record_ids(7)).ids) == 7
    store.delete("notes", record_ids(2))
    assert len(store.search("notes", unit_vectors(1)[0], 7)) == 5
