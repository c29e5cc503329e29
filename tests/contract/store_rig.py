"""Stores on fake servers and records for them: what the rigs and their fault tests share."""

import pytest

from embedmill.document import record_id
from embedmill.testing.counting_store_contract import UNIT, unit_vectors
from embedmill.vector_store import VectorBatch

# An alias was switched, although the reply does not say so: settled by looking.
DONE = object()


def record_ids(count, start=0):
    return [record_id(f"doc-{row}", 0) for row in range(start, start + count)]


def records(count, *, seed=0, start=0, **payload):
    ids = record_ids(count, start)
    payloads = [
        {
            "doc_id": f"doc-{row}",
            "chunk_index": 0,
            "text": f"text {row}",
            "metadata": {"lang": ["en", "de"][row % 2], "year": 2000 + row % 5},
            **payload,
        }
        for row in range(start, start + count)
    ]
    return VectorBatch(ids, unit_vectors(count, seed), payloads)


def as_text(ids):
    return set(map(str, ids))


def ids_of(cases):
    """Names of tests by fault."""
    return ["-".join([deed, *(str(value) for value in more.values())]) for deed, more, *_ in cases]


class StoreRig:
    """A server with planned faults, and stores on it.

    Attributes:
        server_type: its class.
        options_type: its options.
        settings_type: of a store.
        store_type: the store.
        kind: of the settings.
    """

    def __init__(self, *faults, **options):
        self.server = self.server_type(faults, options=self.options_type(**options))
        self.stores = []

    def settings(self, **more):
        return self.settings_type.model_validate({"kind": self.kind, **self.address(), **more})

    def store(self, *, sleep=None, clock=None, pace=None, **more):
        given = {"sleep": sleep, "clock": clock, "pace": pace}
        seams = {name: seam for name, seam in given.items() if seam}
        self.stores.append(self.store_type(self.settings(**more), **seams))
        return self.stores[-1]

    def filled(self, count, name="notes", **more):
        """A store whose collection has records; what it asked for so far is forgotten."""
        store = self.store(**more)
        store.create_collection(name, UNIT)
        if count:
            store.upsert(name, records(count))
        self.server.plan.calls.clear()
        return store

    def calls(self, route):
        return self.server.plan.calls[route]

    def close(self):
        for store in self.stores:
            store.close()
        self.server.__exit__(None, None, None)


def hurried(rig, deed, **more):
    """The store that meets a deed. It waits a second at most where the deed is to outlast that.

    Everywhere else the machine may be as slow as it likes.
    """
    return rig.store(**more, **({"timeout_s": 1} if deed.startswith("slow") else {}))


def check_upsert_that_fails(rig, route, kind, *, call, deed, **more):
    """It ends in its error, repeated by nobody, and a second one completes it."""
    store = rig.filled(40, records_per_request=25)
    rig.server.plan.add(rig.server.plan.kind(at=route, do=deed, call=call, **more))
    with pytest.raises(kind) as failure:
        hurried(rig, deed, records_per_request=25).upsert("notes", records(100, start=20))
    assert type(failure.value) is kind
    assert rig.calls(route) == call
    assert list(store.upsert("notes", records(100, start=20))) == []
    assert rig.ids() == as_text(record_ids(120))


def check_deletion_that_fails(rig, route, kind, *, deed, **more):
    """It ends in its error, repeated by nobody, and a second one completes it."""
    store = rig.filled(40)
    rig.server.plan.next_call(at=route, do=deed, **more)
    with pytest.raises(kind) as failure:
        hurried(rig, deed).delete("notes", record_ids(30))
    assert type(failure.value) is kind
    assert rig.calls(route) == 1
    store.delete("notes", record_ids(30))
    assert rig.ids() == as_text(record_ids(10, start=30))


def check_switch_that_fails(rig, kind, *, deed, **more):
    """It leaves the old target or the new one, and never none."""
    store = rig.filled(1)
    store.create_collection("newer", UNIT)
    store.set_alias("live", "notes")
    rig.server.plan.next_call(at="aliases.update", do=deed, **more)
    switching = hurried(rig, deed)
    if kind is DONE:
        switching.set_alias("live", "newer")
    else:
        with pytest.raises(kind) as failure:
            switching.set_alias("live", "newer")
        assert type(failure.value) is kind
        assert store.alias_target("live") in {"notes", "newer"}
    store.set_alias("live", "newer")
    assert store.alias_target("live") == "newer"


def check_confirmed_and_lost(rig, route):
    """It shows in the count, and comes with a second try."""
    store = rig.filled(0)
    rig.plan(route, "silent-drop", count=2)
    assert list(store.upsert("notes", records(10))) == []
    assert store.count("notes") == 8
    store.upsert("notes", records(10))
    assert store.count("notes") == 10


def check_lagging_count(rig, route):
    """It is given as the server gives it."""
    store = rig.filled(10)
    rig.plan(route, "lag", count=3)
    assert [store.count("notes"), store.count("notes")] == [7, 10]
