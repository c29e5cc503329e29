"""Segments: what was committed reads back, and what was not is never taken for it."""

import random
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.applied_layer import Applied, AppliedLayer
from embedmill.chunker import Chunk
from embedmill.document import text_hash
from embedmill.errors import DamagedFileError, ShardOwnedElsewhereError
from embedmill.ledger import LedgerEntry
from embedmill.parquet_files import digest_of, to_parquet
from embedmill.pending_segment import DraftedDocument, PendingSegment, StoredDocuments
from embedmill.segment import ChunkLayer, SegmentKey, digests_in
from embedmill.segment_records import CHUNK_COLUMNS
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.vector_layer import DEAD, EMBEDDED, REUSED, SegmentVectors, VectorLayer

KEY = SegmentKey(3, 12)
ODD_TEXTS = ["", "a\x00b", "\u2028\u2029\x85", "👩‍👩‍👧", "x" * 70_000, "נקודה", "\ufeff"]


@pytest.fixture
def workspace():
    return MemoryWorkspace()


@pytest.fixture
def chunks(workspace):
    return ChunkLayer(workspace, "an-index", "chunking")


@pytest.fixture
def vectors(workspace):
    return VectorLayer(workspace, "an-index", "chunking/embedding", 4)


@pytest.fixture
def applied(workspace):
    return AppliedLayer(workspace, "an-index", "an-index--v1")


def document(name, texts, **more):
    pieces = [Chunk(text, 0, len(text), 1, ("Top", text[:5])) for text in texts]
    hashes = [text_hash(text) for text in texts]
    values = {"uri": f"{name}.txt", "metadata": '{"a": 1}', "previous": None, **more}
    return DraftedDocument(
        name,
        b"\0" * 15 + b"f",
        chunks=pieces,
        hashes=hashes,
        same_as=[(-1, -1)] * len(texts),
        **values,
    )


def commit(layer, documents, key=KEY):
    pending = PendingSegment()
    for drafted in documents:
        pending.add(drafted)
    layer.commit(key, *pending.tables())
    return pending


def made_up_vectors(count):
    rows = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
    return SegmentVectors(rows, np.full(count, EMBEDDED, np.int8), {})


@given(st.lists(st.sampled_from([b"\0" * 16, b"a" * 16, b"a" * 15 + b"\0"]), max_size=5))
def test_digests_come_out_of_a_column_with_all_their_zeros(digests):
    column = pa.chunked_array([pa.array(digests, pa.binary(16))] * 2).slice(1)
    assert digests_in(column) == (digests * 2)[1:]


def test_some_columns_of_chunks_are_held_against_the_same_digest_as_all_of_them(chunks, workspace):
    commit(chunks, [document("a", ["one", "two"]), document("b", ["three"])])
    all_columns, digest = chunks.chunks(KEY)
    assert chunks.chunks(KEY, ("text", "doc_row")) == (
        all_columns.select(["text", "doc_row"]),
        digest,
    )
    name = next(entry.path for entry in workspace.list("indexes") if ".chunks." in entry.path)
    workspace.replace(name, workspace.read(name)[:-1] + b"?")
    with pytest.raises(DamagedFileError):
        chunks.chunks(KEY, ("doc_row",))


@given(st.lists(st.lists(st.sampled_from(ODD_TEXTS) | st.text(max_size=9), max_size=4), max_size=5))
def test_documents_and_chunks_read_back_as_they_were(texts_of):
    layer = ChunkLayer(MemoryWorkspace(), "an-index", "chunking")
    drafted = [document(f"d{n} é", texts) for n, texts in enumerate(texts_of)]
    commit(layer, drafted)
    stored = StoredDocuments(layer, KEY.shard)
    for before in drafted:
        entry = LedgerEntry(before.fingerprint, len(before.chunks), KEY.number, False)
        after = stored.read(before.doc_id, entry)
        assert after.chunks == before.chunks
        assert after.hashes == before.hashes
        assert (after.uri, after.metadata) == (before.uri, before.metadata)
        assert [row for _, row in after.same_as] == list(
            range(after.same_as[0][1], after.same_as[0][1] + len(before.chunks))
            if before.chunks
            else []
        )


def test_equal_segments_are_equal_files(workspace, chunks):
    commit(chunks, [document("a", ["one", "two"])])
    commit(chunks, [document("a", ["one", "two"])])
    assert len(workspace.files) == 2


def test_vectors_read_back_with_null_rows_and_reasons(vectors):
    rows = made_up_vectors(3)
    rows.vectors[1] = np.nan
    rows.origin[:] = [REUSED, DEAD, EMBEDDED]
    vectors.commit(KEY, SegmentVectors(rows.vectors, rows.origin, {1: ("blank", "no text")}), "d1")

    back = vectors.read(KEY, "d1")

    np.testing.assert_array_equal(back.vectors, rows.vectors)
    np.testing.assert_array_equal(back.origin, rows.origin)
    assert back.failures == {1: ("blank", "no text")}
    assert vectors.committed() == {3: [12]}


@pytest.mark.parametrize("seal", ["blake2b", "xxh3"])
def test_vectors_as_earlier_releases_wrote_them_are_read(workspace, vectors, seal, monkeypatch):
    monkeypatch.setattr("embedmill.parquet_files._SEALED_BY", seal)
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows[1] = np.nan
    none = pa.nulls(3, pa.string())
    lists = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.ravel()), 4, mask=pa.array([False, True, False])
    )
    table = pa.table(
        {
            "vector": lists,
            "origin": pa.array([EMBEDDED, DEAD, EMBEDDED], pa.int8()),
            "failure_code": pa.array([None, "blank", None], pa.string()),
            "failure_message": pa.array([None, "no text", None], pa.string()),
            "made_by": none,
        }
    ).replace_schema_metadata({"format": "1", "chunks_digest": "d1", "run": "r"})
    path = f"indexes/an-index/vectors/chunking/embedding/{KEY}.parquet"
    workspace.create(path, to_parquet(table, compression="none"))

    back = vectors.read(KEY, "d1")

    np.testing.assert_array_equal(back.vectors, rows)
    assert back.failures == {1: ("blank", "no text")}
    assert back.run == "r"


def test_documents_and_chunks_as_earlier_releases_wrote_them_are_read(
    workspace, chunks, monkeypatch
):
    monkeypatch.setattr("embedmill.segment._COMPRESSION", "zstd")
    monkeypatch.setattr("embedmill.parquet_files._SEALED_BY", "blake2b")
    commit(chunks, [document("a", ["one", "two"])])
    monkeypatch.undo()
    docs, rows, digest = chunks.rows(KEY, CHUNK_COLUMNS)
    assert docs.column("doc_id").to_pylist() == ["a"]
    assert rows.column("text").to_pylist() == ["one", "two"]
    assert rows.column_names == list(CHUNK_COLUMNS)
    named = next(path for path in workspace.files if path.endswith(".chunks.parquet"))
    assert digest == digest_of(workspace.files[named])


def test_another_whole_file_in_the_place_of_a_chunk_file_is_refused(workspace, chunks):
    for number, text in enumerate(["one", "two"]):
        commit(chunks, [document("a", [text])], SegmentKey(3, number))
    one, two = sorted(path for path in workspace.files if path.endswith(".chunks.parquet"))
    workspace.files[one] = workspace.files[two]
    with pytest.raises(DamagedFileError, match="is not the file that was committed"):
        chunks.chunks(SegmentKey(3, 0))


def test_what_was_read_of_vectors_cannot_be_written_to(vectors):
    vectors.commit(KEY, made_up_vectors(2), "d1")
    with pytest.raises(ValueError, match="read-only"):
        vectors.read(KEY, "d1").vectors[0, 0] = 1


def test_a_segment_without_chunks_has_vectors_too(chunks, vectors):
    commit(chunks, [document("empty", [])])
    digest = chunks.chunks(KEY)[1]
    vectors.commit(KEY, made_up_vectors(0), digest)
    assert vectors.read(KEY, digest).vectors.shape == (0, 4)


def test_what_the_store_confirmed_reads_back(applied):
    confirmed = Applied(5, 2, ((3, "payload-too-large", "é"),), 17, "2031-01-01T00:00:00+00:00")
    applied.commit(KEY, confirmed)
    assert applied.read(KEY) == confirmed


def test_a_second_confirmation_changes_nothing(applied):
    applied.commit(KEY, Applied(5, 2, (), 17, "first"))
    applied.commit(KEY, Applied(6, 0, (), 18, "second"))
    assert applied.read(KEY).time == "first"


def test_the_vectors_that_were_first_stand(vectors):
    assert vectors.commit(KEY, made_up_vectors(2), "d1")
    other = made_up_vectors(2)
    other.vectors[:] += 1
    assert not vectors.commit(KEY, other, "d1")
    assert vectors.read(KEY, "d1").vectors[0, 0] == 0


def test_vectors_of_other_chunks_are_not_taken(vectors):
    vectors.commit(KEY, made_up_vectors(2), "d1")
    with pytest.raises(DamagedFileError, match="made for other chunks") as caught:
        vectors.read(KEY, "d2")
    assert "/indexes/an-index/vectors" in str(caught.value)


def test_a_chunk_file_of_somebody_else_under_the_same_number_is_never_read(workspace, chunks):
    """A killed run leaves chunks without documents; the next one drafts other documents."""
    killed = ChunkLayer(workspace, "an-index", "chunking")
    commit(killed, [document("theirs", ["their text"])])
    del workspace.files[next(path for path in workspace.files if "docs" in path)]
    assert chunks.committed() == {}

    commit(chunks, [document("ours", ["our text"])])

    assert chunks.chunks(KEY)[0].column("text").to_pylist() == ["our text"]
    assert chunks.docs(KEY).column("doc_id").to_pylist() == ["ours"]


def test_of_two_writers_of_a_number_the_second_is_told_so(chunks):
    commit(chunks, [document("a", ["one"])])
    with pytest.raises(ShardOwnedElsewhereError, match="two runs write to this index") as caught:
        commit(chunks, [document("b", ["two"])])
    assert "run the same command again" in caught.value.hint
    assert chunks.docs(KEY).column("doc_id").to_pylist() == ["a"]


def test_chunks_that_disappeared_are_named(workspace, chunks):
    commit(chunks, [document("a", ["one"])])
    gone = next(path for path in workspace.files if path.endswith(".chunks.parquet"))
    del workspace.files[gone]
    with pytest.raises(DamagedFileError, match=f"{gone} was committed and is missing"):
        chunks.chunks(KEY)


@pytest.fixture
def filled(workspace, chunks, vectors, applied):
    """One committed segment in every layer, and how each of its files is read."""
    commit(chunks, [document("a", ["one", "two"]), document("b", ["three"])])
    digest = chunks.chunks(KEY)[1]
    vectors.commit(KEY, made_up_vectors(3), digest)
    applied.commit(KEY, Applied(3, 0, (), 3, "now"))
    return {
        ".docs.parquet": lambda: chunks.docs(KEY),
        ".chunks.parquet": lambda: chunks.chunks(KEY),
        "12.parquet": lambda: vectors.read(KEY, digest),
        ".json": lambda: applied.read(KEY),
    }


KINDS = [".docs.parquet", ".chunks.parquet", "12.parquet", ".json"]


def damages(data):
    dice = random.Random(1)
    yield b""
    yield bytes(len(data))
    yield data + b"\0"
    for size in {1, 4, 8, len(data) // 2, len(data) - 8, len(data) - 1}:
        yield data[:size]
    # Every byte, in one of its bits.
    for at in range(len(data)):
        turned = bytearray(data)
        turned[at] ^= 1 << dice.randrange(8)
        yield bytes(turned)


@pytest.mark.parametrize("kind", KINDS)
def test_a_torn_emptied_or_changed_file_never_passes_for_a_whole_one(workspace, filled, kind):
    path = next(path for path in workspace.files if path.endswith(kind))
    whole = workspace.files[path]
    for damaged in damages(whole):
        workspace.files[path] = damaged
        with pytest.raises(DamagedFileError) as caught:
            filled[kind]()
        assert path in str(caught.value)
        assert caught.value.hint
    workspace.files[path] = whole
    filled[kind]()


def test_a_changed_file_is_not_believed_by_those_who_read_only_its_notes(workspace, chunks, filled):
    path = next(path for path in workspace.files if path.endswith(".docs.parquet"))
    whole = workspace.files[path]
    for damaged in damages(whole):
        workspace.files[path] = damaged
        for look in (chunks.chunks, chunks.is_copy):
            with pytest.raises(DamagedFileError, match=re.escape(path)):
                look(KEY)


def test_segments_are_listed_by_shard_in_ascending_order(chunks):
    for shard, number in ((0, 1), (12, 0), (0, 0), (10_000, 0)):
        commit(chunks, [document("a", [])], SegmentKey(shard, number))
    assert chunks.committed() == {0: [0, 1], 12: [0], 10_000: [0]}
    assert chunks.committed_of(0) == [0, 1]
    assert chunks.committed_of(5) == []


def test_a_segment_that_is_missing_among_others_is_named(chunks):
    for number in (0, 1, 3):
        commit(chunks, [document("a", [])], SegmentKey(2, number))
    for look in (chunks.committed, partial(chunks.committed_of, 2)):
        with pytest.raises(DamagedFileError, match=r"s0002/00000002.docs.parquet was committed"):
            look()
    chunks.mark_snapshot(SegmentKey(2, 3))
    assert chunks.committed() == {2: [3]}


def test_a_segment_that_was_committed_while_it_was_listed_counts(chunks, workspace, monkeypatch):
    for number in range(4):
        commit(chunks, [document("a", [])], SegmentKey(2, number))
    real = workspace.list

    def passed_by(folder):
        return [entry for entry in real(folder) if "/00000001.docs" not in entry.path]

    monkeypatch.setattr(workspace, "list", passed_by)
    assert chunks.committed() == {2: [0, 1, 2, 3]}


def test_keys_sort_by_shard_and_number_and_are_read_by_people():
    assert sorted([SegmentKey(1, 0), SegmentKey(0, 2), SegmentKey(0, 1)]) == [
        SegmentKey(0, 1),
        SegmentKey(0, 2),
        SegmentKey(1, 0),
    ]
    assert str(KEY) == "s0003/00000012"
