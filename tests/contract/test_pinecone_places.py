"""Versions of several dimensions and metrics in Pinecone: an index each, one alias for readers."""

import pytest

pytest.importorskip("pinecone")

from pinecone_rig import INDEX, Fault, rigs

from embedmill.errors import EmbedmillError, RefusedError
from embedmill.testing.counting_store_contract import UNIT, a_batch, record_ids, unit_vectors
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.pinecone_client import sibling_name

WIDE = CollectionSpec(24, "cosine", normalised=True)
DOT = CollectionSpec(16, "dot", normalised=False)


@pytest.fixture
def make_rig(monkeypatch):
    with rigs(monkeypatch) as make:
        yield make


@pytest.fixture
def rig(make_rig):
    return make_rig()


def wide(count, name):
    return VectorBatch(record_ids(count), unit_vectors(count, 3, 24), [{"version": name}] * count)


def versions(rig):
    """Three versions of three kinds, the first of them live."""
    store = rig.with_notes()
    store.upsert("notes", a_batch(5, payloads=[{"version": "notes"}] * 5))
    store.create_collection("wide", WIDE)
    store.upsert("wide", wide(6, "wide"))
    store.create_collection("dot", DOT)
    store.set_alias("live", "notes")
    return store


def test_each_kind_has_an_index_of_its_own_and_all_are_one_store(rig):
    store = versions(rig)
    assert sorted(rig.server.indexes) == [INDEX, f"{INDEX}-16-dotproduct", f"{INDEX}-24-cosine"]
    assert list(store.collections()) == ["dot", "notes", "wide"]
    assert (store.count("notes"), store.count("wide"), store.count("dot")) == (5, 6, 0)
    another = rig.store()
    assert list(another.fetch("wide", record_ids(2)).payloads) == [{"version": "wide"}] * 2
    assert another.search("wide", unit_vectors(1, 3, 24)[0], 1)[0].payload == {"version": "wide"}
    with pytest.raises(RefusedError, match="dimension 24"):
        another.create_collection("notes", WIDE)


def test_an_alias_leads_from_one_index_to_another_and_back(rig):
    store, reader = versions(rig), rig.store()
    for name in ("wide", "notes", "dot", "wide"):
        store.set_alias("live", name)
        for one in (store, reader, rig.store()):
            assert one.alias_target("live") == name
        assert reader.count("live") == store.count(name)
        holders = [index for index in rig.server.indexes.values() if "live" in index.aliases]
        assert len(holders) == 1
    store.drop_collection("notes")
    with pytest.raises(RefusedError, match="alias 'live' points at"):
        store.drop_collection("wide")
    assert list(store.collections()) == ["dot", "wide"]


@pytest.mark.parametrize("do", ["error", "drop-reply"])
@pytest.mark.parametrize(
    "route", ["aliases.create", "aliases.repoint", "vectors.upsert", "aliases.delete"]
)
def test_a_switch_between_indexes_that_breaks_off_shows_the_old_or_the_new(rig, route, do):
    store = versions(rig)
    before = "notes"
    for after in ("wide", "dot", "notes"):
        rig.server.plan.add(Fault(at=route, do=do, call=rig.calls(route) + 1))
        try:
            store.set_alias("live", after)
        except EmbedmillError:
            assert rig.store().alias_target("live") in {before, after}
            assert rig.store().count("live") in {store.count(before), store.count(after)}
            store.set_alias("live", after)
        assert rig.store().alias_target("live") == after
        before = after


def test_a_name_is_alias_or_collection_whatever_the_index(rig):
    store = versions(rig)
    with pytest.raises(RefusedError, match="is a collection"):
        store.set_alias("wide", "notes")
    with pytest.raises(RefusedError, match="is an alias already"):
        store.create_collection("live", WIDE)


def test_indexes_of_others_are_no_part_of_it(rig):
    versions(rig)
    stranger = rig.store(index="docs-of-others")
    stranger.create_collection("theirs", UNIT)
    assert "theirs" not in rig.store().collections()
    assert list(stranger.collections()) == ["theirs"]


def test_where_none_may_be_created_the_one_that_is_needed_is_named(rig):
    rig.with_notes()
    store = rig.store(create_index=False)
    with pytest.raises(RefusedError, match="'docs-24-cosine', and create_index is false"):
        store.create_collection("wide", WIDE)


def test_names_of_indexes_keep_to_the_limit():
    name = sibling_name("a" * 45, CollectionSpec(1536, "euclid", normalised=False))
    assert name == "a" * 30 + "-1536-euclidean"
    assert len(name) == 45
    assert sibling_name("a-" + "b" * 43, WIDE) == "a-" + "b" * 33 + "-24-cosine"
