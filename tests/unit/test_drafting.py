"""Drafting one shard: what becomes of each document, and what is committed."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill import drafting, earlier_chunks, pending_segment
from embedmill.chunker import Chunk
from embedmill.counts import DocumentCounts
from embedmill.document import RawDocument
from embedmill.drafting import ShardDrafter
from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.readings import Readings
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.run_context import RunContext
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.settings import Settings
from embedmill.testing.memory_workspace import MemoryWorkspace

CHUNKING = ChunkingRecipe("text", 1, "", "words", 3, 0, "refuse", "none")
EMBEDDING = EmbeddingRecipe("hashing", "hashing", "1", 8, "float32", True, "", "", 99, "cosine")


class LineParser:
    """Text as it is; some words make it fail."""

    def fallback_for(self, content):
        return ""

    def parse(self, content, media_type):
        text = content.decode()
        if "REFUSED" in text:
            raise PermanentError("not like this", code="no-good", hint="write it otherwise")
        if "SURPRISE" in text:
            raise ZeroDivisionError(text)
        if "DEEP" in text:
            raise RecursionError
        warnings = ("a bit odd",) if "ODD" in text else ()
        metadata = {"parsed": True, "both": "parsed"}
        if "NOTJSON" in text:
            metadata["half"] = "\ud800"
        return ParsedDocument(text, metadata=metadata, warnings=warnings)


class WordChunker:
    """One chunk a word; some words make it fail."""

    recipe = CHUNKING

    def chunk(self, documents):
        return [self._chunks(document.text) for document in documents]

    def _chunks(self, text):
        if "TOOLONG" in text:
            raise PermanentError("over the window", code="over-window")
        if "PANIC" in text:
            raise ValueError(text)
        return [Chunk(word, 0, len(word), 1) for word in text.split()]


def raw(name, text, **more):
    values = {"content": text.encode(), "media_type": "text/plain", "metadata": "{}", **more}
    return RawDocument(doc_id=name, uri=f"rows.jsonl:{name}", **values)


def unreadable(name, uri="rows.jsonl:9"):
    return RawDocument(name, None, "text/plain", "{}", uri, "json", "no JSON")


class Shard:
    """One shard over a workspace in memory; every call is a new run over it."""

    def __init__(self, **run):
        self.workspace = MemoryWorkspace()
        self.layer = ChunkLayer(self.workspace, "an-index", CHUNKING.id)
        values = {
            "index": "an-index",
            "workspace": "unused",
            "source": {"kind": "table", "path": "unused"},
            "chunker": {"kind": "text"},
            "embedder": {"kind": "hashing"},
            "store": {"kind": "memory"},
            "run": {"segment_chunks": 4, **run},
        }
        self.settings = Settings.model_validate_json(json.dumps(values))

    def drafter(self, run="a-run", **more):
        context = RunContext(self.settings, run, "v1", "an-index--v1", CHUNKING, EMBEDDING)
        return ShardDrafter(
            context,
            self.layer,
            0,
            parser=LineParser(),
            chunker=WordChunker,
            readings=Readings(self.workspace, "an-index", CHUNKING.id, 0),
            **more,
        )

    def sync(self, texts, *, remove=True):
        """A run over these documents: texts by id, or rows."""
        rows = [raw(*pair) for pair in texts.items()] if isinstance(texts, dict) else texts
        drafter = self.drafter()
        outcome = drafter.draft(rows)
        outcome.add(drafter.finish())
        if remove:
            outcome.add(drafter.remove_unseen())
        return outcome

    def rows(self, number):
        return self.layer.docs(SegmentKey(0, number)).to_pylist()

    def chunk_rows(self, number):
        return self.layer.chunks(SegmentKey(0, number))[0].to_pylist()


@pytest.fixture
def shard():
    return Shard()


@pytest.fixture(autouse=True)
def first_segments_are_small(monkeypatch):
    monkeypatch.setattr(drafting, "_FIRST_SEGMENT", 4)


def counts(**numbers):
    return DocumentCounts(**numbers)


def test_new_documents_are_added_and_seen_again_unchanged(shard):
    assert shard.sync({"a": "one two", "b": ""}).counts == counts(read=2, added=2, empty=1)
    assert shard.sync({"a": "one two", "b": ""}).counts == counts(read=2, unchanged=2, empty=1)
    assert shard.layer.committed_of(0) == [0]


@pytest.mark.parametrize(
    "change", [{"content": b"two"}, {"media_type": "text/html"}, {"metadata": '{"a":1}'}]
)
def test_whatever_a_reader_could_see_makes_a_document_a_changed_one(shard, change):
    shard.sync([raw("a", "one")])
    outcome = shard.sync([raw("a", "one")._replace(**change)])
    assert outcome.counts == counts(read=1, changed=1)
    row = shard.rows(1)[0]
    assert (row["previous_segment"], row["previous_chunk_count"]) == (0, 1)


def test_a_row_that_moved_to_another_line_is_unchanged(shard):
    shard.sync([raw("a", "one")])
    moved = raw("a", "one")._replace(uri="rows.jsonl:77")
    assert shard.sync([moved]).counts == counts(read=1, unchanged=1)


@pytest.mark.parametrize(
    ("before", "after"), [("1 2 3 4 5", "1 2"), ("1 2", "1 2 3 4 5"), ("1 2", ""), ("", "1 2")]
)
def test_a_document_that_shrinks_or_grows_says_what_it_had(shard, before, after):
    shard.sync({"a": before})
    shard.sync({"a": after})
    row = shard.rows(1)[0]
    assert row["chunk_count"] == len(after.split())
    assert row["previous_chunk_count"] == len(before.split())


def test_a_document_that_is_gone_leaves_a_row_that_says_so(shard):
    shard.sync({"a": "one two", "b": "three"})
    outcome = shard.sync({"b": "three"})
    assert outcome.counts == counts(read=1, unchanged=1, removed=1)
    row = shard.rows(1)[0]
    assert (row["doc_id"], row["deleted"], row["chunk_count"]) == ("a", True, 0)
    assert (row["previous_segment"], row["previous_chunk_count"]) == (0, 2)
    # Gone is gone: the next sync has nothing to remove, and a return is an addition.
    assert shard.sync({"b": "three"}).counts == counts(read=1, unchanged=1)
    assert shard.sync({"a": "one two", "b": "three"}).counts == counts(read=2, unchanged=1, added=1)
    assert shard.rows(2)[0]["previous_segment"] == -1


def test_of_two_rows_with_one_id_the_first_counts_and_the_second_says_where_it_stands(shard):
    rows = [raw("a", "one"), raw("a", "two")._replace(uri="rows.jsonl:2")]
    outcome = shard.sync(rows)
    assert outcome.counts == counts(read=2, added=1, dead=1)
    letter = outcome.letters[0]
    assert (letter.code, letter.uri) == ("duplicate-id", "rows.jsonl:2")
    assert [row["text"] for row in shard.chunk_rows(0)] == ["one"]


def test_a_document_that_cannot_be_read_keeps_what_the_index_has_of_it(shard):
    shard.sync({"a": "one"})
    outcome = shard.sync([unreadable("a")])
    assert outcome.counts == counts(read=1, dead=1)
    assert shard.sync({"a": "one"}).counts == counts(read=1, unchanged=1)


def test_a_row_of_unknown_identity_is_counted_as_such(shard):
    assert shard.sync([unreadable("")], remove=False).counts == counts(
        read=1, dead=1, unidentified=1
    )


@pytest.mark.parametrize(
    ("text", "stage", "code", "message"),
    [
        ("REFUSED", "parse", "no-good", "not like this; write it otherwise"),
        ("SURPRISE secret", "parse", "unexpected", "ZeroDivisionError in the parse step"),
        ("DEEP", "parse", "unexpected", "RecursionError in the parse step"),
        ("NOTJSON", "parse", "unexpected", "TypeError in the parse step"),
        ("TOOLONG", "chunk", "over-window", "over the window"),
        ("PANIC secret", "chunk", "unexpected", "ValueError in the chunk step"),
    ],
)
def test_whatever_a_parser_or_chunker_raises_ends_one_document(shard, text, stage, code, message):
    outcome = shard.sync({"a": "one", "bad": text, "b": "two"})
    assert outcome.counts == counts(read=3, added=2, dead=1)
    letter = outcome.letters[0]
    assert (letter.doc_id, letter.stage, letter.code) == ("bad", stage, code)
    # The message never quotes the document.
    assert letter.message == message


def test_warnings_of_a_parser_are_counted_and_logged_with_the_place(shard, caplog):
    with caplog.at_level(logging.WARNING):
        assert shard.sync({"a": "ODD"}).counts.warnings == 1
    assert "rows.jsonl:a: a bit odd" in caplog.text


def test_metadata_of_the_source_wins_over_what_stands_in_the_document(shard):
    shard.sync([raw("a", "one", metadata='{"both":"source"}')])
    assert json.loads(shard.rows(0)[0]["metadata"]) == {"both": "source", "parsed": True}


def test_a_document_that_ended_workers_is_not_read_again(shard):
    drafter = shard.drafter()
    outcome = drafter.draft([raw("a", "one"), raw("b", "two")], {1: "it ended 2 workers"})
    assert outcome.counts == counts(read=2, added=1, dead=1)
    assert (outcome.letters[0].code, outcome.letters[0].doc_id) == ("killed-worker", "b")


texts = st.sampled_from(["", "a", "a b", "a b c", "a b c d e f g", "SURPRISE", "PANIC"])
corpora = st.lists(st.tuples(st.sampled_from("uvwxyz"), texts), max_size=14)


@given(corpora, st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_the_same_documents_in_other_blocks_give_the_same_files(pairs, sizes):
    whole, parted = Shard(), Shard()
    rows = [raw(f"{name}{at % 9}", text) for at, (name, text) in enumerate(pairs)]
    drafter = whole.drafter()
    drafter.draft(rows)
    drafter.finish()
    drafter, left, turn = parted.drafter(), rows, 0
    while left:
        size = sizes[turn % len(sizes)]
        drafter.draft(left[:size])
        left, turn = left[size:], turn + 1
    drafter.finish()
    assert whole.workspace.files == parted.workspace.files


@given(st.lists(corpora, min_size=1, max_size=4))
def test_the_counts_add_up_and_the_ledger_is_what_was_committed(histories):
    shard = Shard()
    for pairs in histories:
        rows = [raw(name, text) for name, text in pairs]
        drafter = shard.drafter()
        outcome = drafter.draft(rows)
        outcome.add(drafter.finish())
        outcome.add(drafter.remove_unseen())
        c = outcome.counts
        assert c.read == c.added + c.changed + c.unchanged + c.dead == len(rows)
        assert c.dead == len(outcome.letters)
        assert len(drafter.ledger) == len(shard.drafter().ledger)
        assert list(drafter.ledger.entries()) == list(shard.drafter().ledger.entries())
        for committed in outcome.committed:
            hashes = [row["text_hash"] for row in shard.chunk_rows(committed.key.number)]
            assert committed.text_hashes == b"".join(hashes)


def test_segments_close_by_chunks_by_bytes_and_by_documents(monkeypatch):
    monkeypatch.setattr(drafting, "_MAX_SEGMENT_DOCS", 3)
    by_chunks = Shard(segment_chunks=2)
    by_chunks.sync({f"d{n}": "one" for n in range(5)})
    assert by_chunks.layer.committed_of(0) == [0, 1, 2]
    by_bytes = Shard(segment_chunks=100, segment_bytes=10)
    # Two bytes a letter.
    by_bytes.sync({f"d{n}": "éééééé" for n in range(3)})
    assert by_bytes.layer.committed_of(0) == [0, 1, 2]
    by_documents = Shard(segment_chunks=100)
    by_documents.sync({f"d{n}": "" for n in range(7)})
    assert [len(by_documents.rows(n)) for n in range(3)] == [3, 3, 1]
    by_documents.sync({})
    assert [len(by_documents.rows(n)) for n in range(3, 6)] == [3, 3, 1]


def test_the_first_segments_are_small_and_each_is_four_times_the_one_before():
    shard = Shard(segment_chunks=20)
    shard.sync({f"d{n}": "one" for n in range(62)})
    assert [len(shard.rows(number)) for number in range(5)] == [4, 16, 20, 20, 2]


def test_a_document_never_spans_segments_and_has_a_largest_size(monkeypatch):
    monkeypatch.setattr(drafting, "MAX_SEGMENT_CHUNKS", 5)
    shard = Shard(segment_chunks=5)
    outcome = shard.sync({"a": "1 2 3", "b": "1 2 3 4 5", "c": "1 2 3 4 5 6", "d": "1"})
    said = outcome.letters[0].message
    assert said.startswith("6 chunks, a document may have 5: split it")
    assert "chunker.max_tokens" in said
    assert [[row["doc_id"] for row in shard.rows(n)] for n in range(3)] == [["a"], ["b"], ["d"]]
    # Documents that are sent through again keep to the same limit.
    drafter = shard.drafter()
    drafter.redraft(["a", "b", "d"])
    assert all(len(shard.chunk_rows(n)) <= 5 for n in shard.layer.committed_of(0))


def test_a_changed_document_refers_to_the_chunks_it_had(shard):
    shard.sync({"x": "skip", "a": "one two three two"})
    shard.sync({"x": "skip", "a": "zero two three"})
    rows = shard.chunk_rows(1)
    places = [(row["same_as_segment"], row["same_as_row"]) for row in rows]
    earlier = shard.chunk_rows(0)
    assert places[0] == (-1, -1)
    assert [earlier[row]["text"] for _, row in places[1:]] == ["two", "three"]


def test_chunks_of_other_documents_are_not_referred_to(shard):
    shard.sync({"a": "one two"})
    shard.sync({"a": "one two", "b": "one two"})
    assert [row["same_as_segment"] for row in shard.chunk_rows(1)] == [-1, -1]


def test_documents_of_many_segments_change_at_once(monkeypatch):
    monkeypatch.setattr(earlier_chunks, "_KEPT", 2)
    shard = Shard(segment_chunks=1)
    names = [f"d{n}" for n in range(6)]
    shard.sync({name: f"{name} same" for name in names})
    shard.sync({name: f"new {name} same" for name in [*names[::2], *names[1::2]]})
    for number in range(6, 12):
        rows = shard.chunk_rows(number)
        assert [row["same_as_segment"] >= 0 for row in rows] == [False, True, True]


def test_documents_that_are_sent_through_again_keep_their_content(shard):
    shard.sync({"a": "one two", "b": "three", "gone": "four"})
    shard.sync({"a": "one two", "b": "three"})
    outcome = shard.drafter().redraft(["b", "gone", "a", "never"])
    assert outcome.counts == counts()
    number = outcome.committed[0].key.number
    assert [row["doc_id"] for row in shard.rows(number)] == ["b", "a"]
    assert [row["text"] for row in shard.chunk_rows(number)] == ["three", "one", "two"]
    assert all(row["same_as_segment"] == 0 for row in shard.chunk_rows(number))
    # Nothing has changed for the next scan.
    assert shard.sync({"a": "one two", "b": "three"}).counts == counts(read=2, unchanged=2)


def test_what_a_dead_worker_had_committed_is_counted_as_it_was(shard):
    shard.sync({"old": "one", "kept": "k"})
    first = shard.drafter()
    rows = [raw("old", "two two two two"), raw("new", "three three three three")]
    # It dies with its pending rows, and without having told anybody.
    first.draft([*rows, raw("kept", "k"), raw("pending", "four")])
    again = shard.drafter(run_start=first.run_start)
    outcome = again.draft([*rows, raw("kept", "k"), raw("pending", "four")])
    assert outcome.counts == counts(read=4, changed=1, added=2, unchanged=1)


def test_all_chunks_of_a_segment_are_counted_in_its_bytes():
    pending = pending_segment.PendingSegment()
    hashes, nowhere = [b"1" * 16, b"2" * 16], [(-1, -1)] * 2
    pending.add(
        pending_segment.DraftedDocument(
            "a", b"", "", "{}", [Chunk("é", 0, 1, 1), Chunk("ab", 0, 2, 1)], hashes, nowhere, None
        )
    )
    assert (pending.chunk_count, pending.text_bytes) == (2, 4)
