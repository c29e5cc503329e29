"""The ledger of a shard, against a plain dictionary."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill import ledger as ledger_module
from embedmill.ledger import Ledger, LedgerEntry, doc_ids_of
from embedmill.pending_segment import DraftedDocument, PendingSegment
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.sharding import doc_key
from embedmill.testing.memory_workspace import MemoryWorkspace

# Keys that share their first half, and ones at both ends of the range.
KEYS = [bytes(8) + bytes([n]) * 8 for n in range(3)] + [
    b"\xff" * 16,
    b"\x80" + bytes(15),
    *(doc_key(f"d{n}") for n in range(4)),
]
entries = st.builds(
    LedgerEntry,
    # Ends in zero bytes: numpy drops them from its byte strings.
    fingerprint=st.binary(min_size=0, max_size=16).map(lambda b: b.ljust(16, b"\0")),
    chunk_count=st.integers(0, 50_000),
    segment=st.integers(0, 2**31 - 1),
    was_known=st.booleans(),
)
keys = st.sampled_from(KEYS)
steps = st.lists(
    st.tuples(st.just("put"), keys, entries)
    | st.tuples(st.just("remove"), keys, st.none())
    | st.tuples(st.just("see"), keys, st.none())
    | st.tuples(st.just("look"), st.none(), st.none())
    | st.tuples(st.just("look up"), st.lists(keys), st.none()),
    max_size=60,
)


@dataclass
class Model:
    entries: dict = field(default_factory=dict)
    seen: set = field(default_factory=set)
    removed: set = field(default_factory=set)


@pytest.fixture(autouse=True)
def merges_often(monkeypatch):
    monkeypatch.setattr(ledger_module, "_SMALL", 3)


def check(ledger, model):
    assert len(ledger) == len(model.entries)
    for key in KEYS:
        assert ledger.get(key) == model.entries.get(key)


def look_at_all(ledger, model):
    unseen = {key: entry for key, entry in model.entries.items() if key not in model.seen}
    assert dict(ledger.unseen()) == unseen
    assert [entry.segment for _, entry in ledger.unseen()] == sorted(
        entry.segment for entry in unseen.values()
    )
    assert ledger.unseen_count() == len(unseen)
    assert ledger.chunk_total() == sum(entry.chunk_count for entry in model.entries.values())
    assert list(ledger.entries()) == sorted(model.entries.items())


@settings(max_examples=150)
@given(steps)
def test_a_ledger_does_what_a_dictionary_does(steps):
    ledger, model = Ledger(), Model()
    for step, key, entry in steps:
        if step == "put":
            ledger.put(key, entry)
            model.entries[key] = entry
        elif step == "remove" and key not in model.seen:
            # Only what a scan has not met is removed, and after the scan.
            ledger.remove(key)
            model.entries.pop(key, None)
            model.removed.add(key)
        elif step == "see" and key not in model.removed:
            assert ledger.see(key) == (key not in model.seen)
            model.seen.add(key)
        elif step == "look up":
            ledger.look_up(key)
        elif step == "look":
            look_at_all(ledger, model)
        check(ledger, model)
    look_at_all(ledger, model)


def rows_of(drafted, number, layer):
    pending = PendingSegment()
    for document in drafted:
        pending.add(document)
    layer.commit(SegmentKey(0, number), *pending.tables())


segments = st.lists(
    st.dictionaries(
        st.sampled_from([f"doc{n}" for n in range(12)]),
        st.tuples(st.binary(min_size=16, max_size=16), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    max_size=6,
)


@given(segments)
def test_folding_the_segments_gives_what_the_ledger_was_when_they_were_written(segments):
    layer = ChunkLayer(MemoryWorkspace(), "an-index", "chunking")
    ledger = Ledger()
    for number, documents in enumerate(segments):
        drafted = []
        for doc_id, (fingerprint, gone) in documents.items():
            key = doc_key(doc_id)
            before = ledger.get(key)
            if gone and before is not None:
                drafted.append(DraftedDocument.deletion(doc_id, before))
                ledger.remove(key)
            else:
                entry = LedgerEntry(fingerprint, 0, number, before is not None)
                drafted.append(DraftedDocument(doc_id, fingerprint, "", "{}", (), (), (), before))
                ledger.put(key, entry)
        rows_of(drafted, number, layer)

    folded, following = Ledger.fold(layer, 0)

    assert following == len(segments)
    assert list(folded.entries()) == list(ledger.entries())
    assert len(folded) == len(ledger)
    names = {key: name for name, key, _ in doc_ids_of(layer, 0, folded.unseen())}
    assert names == {doc_key(name): name for name in names.values()}
    assert len(names) == len(folded)


def test_a_shard_that_has_nothing_starts_at_segment_0():
    ledger, following = Ledger.fold(ChunkLayer(MemoryWorkspace(), "an-index", "c"), 5)
    assert (len(ledger), following) == (0, 0)
    assert ledger.unseen() == []


def test_numbers_go_on_after_a_snapshot():
    layer = ChunkLayer(MemoryWorkspace(), "an-index", "c")
    rows_of([DraftedDocument("a", b"f" * 16, "", "{}", (), (), (), None)], 7, layer)
    layer.mark_snapshot(SegmentKey(0, 7))
    assert Ledger.fold(layer, 0)[1] == 8


def test_a_document_takes_less_than_a_hundred_bytes(monkeypatch):
    monkeypatch.undo()
    ledger = Ledger()
    count = 100_000
    for number in range(count):
        key = number.to_bytes(16, "little")
        ledger.put(key, LedgerEntry(key, 3, number, False))
        ledger.see(key)
    assert ledger.unseen_count() == 0
    held = sum(value.nbytes for value in vars(ledger).values() if isinstance(value, np.ndarray))
    assert held <= 100 * count
    assert not ledger._latest
    assert not ledger._latest_seen
