"""Embedding one segment: each text is paid for once, and a hint is never more than a hint."""

from dataclasses import replace

import numpy as np
import pytest

from embedmill.chunker import Chunk
from embedmill.document import text_hash
from embedmill.embedder import EmbeddedTexts
from embedmill.embedding import embed_segment, probe_document
from embedmill.errors import DamagedFileError, PermanentError, TransientError
from embedmill.pending_segment import DraftedDocument, PendingSegment
from embedmill.recipe import EmbeddingRecipe
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.segment_work import SegmentWork
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.text_index import Loan
from embedmill.vector_layer import DEAD, DEDUPLICATED, EMBEDDED, REUSED, VectorLayer

RECIPE = EmbeddingRecipe("fake", "fake", "1", 2, "float32", True, "", "", 99, "cosine")
NONE = (-1, -1)


class LettersEmbedder:
    """A vector for each text, and a list of all texts that it was given."""

    recipe = RECIPE

    def __init__(self):
        self.given = []
        self.before = lambda: None

    def embed(self, texts, role):
        assert role == "document"
        self.before()
        self.given += texts
        vectors = np.array([[ord(text[0]), len(text)] for text in texts], np.float32)
        failures = {
            at: PermanentError("not this one", code="refused-text")
            for at, text in enumerate(texts)
            if text.startswith("!")
        }
        vectors[list(failures)] = np.nan
        return EmbeddedTexts(vectors.reshape(-1, 2), failures, token_count=10 * len(texts))


class Shard:
    def __init__(self):
        self.workspace = MemoryWorkspace()
        self.chunks = ChunkLayer(self.workspace, "an-index", "c")
        self.vectors = VectorLayer(self.workspace, "an-index", "c/e", 2)
        self.embedder = LettersEmbedder()

    def commit(self, number, *documents, same_as=None):
        """A segment; each document a list of texts."""
        pending = PendingSegment()
        for at, texts in enumerate(documents):
            chunks = [Chunk(text, 0, len(text), 1) for text in texts]
            hints = (same_as or {}).get(at, [NONE] * len(texts))
            hashes = [text_hash(text) for text in texts]
            pending.add(DraftedDocument(f"d{at}", b"f" * 16, "", "{}", chunks, hashes, hints, None))
        self.chunks.commit(SegmentKey(0, number), *pending.tables())

    def embed(self, number, **more):
        key = SegmentKey(0, number)
        return embed_segment(key, self.chunks, self.vectors, self.embedder, **more)

    def read(self, number):
        key = SegmentKey(0, number)
        return self.vectors.read(key, self.chunks.chunks(key)[1])


@pytest.fixture
def shard():
    return Shard()


def test_equal_texts_of_a_segment_are_embedded_once(shard):
    shard.commit(0, ["a", "b", "a"], ["a", "c"])
    outcome = shard.embed(0)
    assert shard.embedder.given == ["a", "b", "c"]
    assert (outcome.counts.embedded, outcome.counts.deduplicated) == (3, 2)
    assert outcome.counts.tokens == 30
    rows = shard.read(0)
    assert rows.vectors[:, 0].tolist() == [ord(c) for c in "abaac"]
    assert rows.origin.tolist() == [EMBEDDED, EMBEDDED, DEDUPLICATED, DEDUPLICATED, EMBEDDED]


def test_a_segment_that_has_vectors_is_not_embedded_again_and_counts_as_before(shard):
    shard.commit(0, ["a", "!b", "a"])
    first = shard.embed(0)
    again = shard.embed(0)
    assert shard.embedder.given == ["a", "!b"]
    assert again.counts == replace(first.counts, tokens=0)
    assert again.failures == first.failures


def test_texts_that_a_document_had_before_keep_their_vectors(shard):
    shard.commit(0, ["a", "b"])
    shard.embed(0)
    shard.commit(1, ["c", "b", "a"], same_as={0: [NONE, (0, 1), (0, 0)]})
    outcome = shard.embed(1)
    assert shard.embedder.given == ["a", "b", "c"]
    assert (outcome.counts.embedded, outcome.counts.reused) == (1, 2)
    assert shard.read(1).vectors[:, 0].tolist() == [ord(c) for c in "cba"]
    assert shard.read(1).origin.tolist() == [EMBEDDED, REUSED, REUSED]


def test_texts_that_another_segment_of_the_run_has_keep_its_vectors(shard):
    shard.commit(0, ["a"])
    shard.commit(1, ["a", "b"])
    shard.embed(0)
    outcome = shard.embed(1, loans=[Loan(0, SegmentKey(0, 0), 0)])
    assert shard.embedder.given == ["a", "b"]
    assert outcome.counts.deduplicated == 1


def remove_vectors(shard):
    shard.workspace.delete(["indexes/an-index/vectors/c/e/s0000/00000000.parquet"])


def tear_vectors(shard):
    path = "indexes/an-index/vectors/c/e/s0000/00000000.parquet"
    shard.workspace.files[path] = shard.workspace.files[path][:100]


def empty_vectors(shard):
    shard.workspace.files["indexes/an-index/vectors/c/e/s0000/00000000.parquet"] = b""


def remove_chunks(shard):
    files = shard.workspace.files
    shard.workspace.delete([p for p in files if "s0000/00000000" in p and ".chunks." in p])


@pytest.mark.parametrize("damage", [remove_vectors, tear_vectors, empty_vectors, remove_chunks])
@pytest.mark.parametrize("kind", ["reuse", "loan"])
def test_a_vector_that_cannot_be_had_any_more_is_paid_for_again(shard, damage, kind):
    shard.commit(0, ["a"])
    shard.embed(0)
    damage(shard)
    if kind == "reuse":
        shard.commit(1, ["a"], same_as={0: [(0, 0)]})
        outcome = shard.embed(1)
    else:
        shard.commit(1, ["a"])
        outcome = shard.embed(1, loans=[Loan(0, SegmentKey(0, 0), 0)])
    assert shard.embedder.given == ["a", "a"]
    assert (outcome.counts.embedded, outcome.counts.dead) == (1, 0)


def test_a_hint_to_another_text_or_to_a_dead_chunk_is_not_followed(shard):
    shard.commit(0, ["a", "!b"])
    shard.embed(0)
    shard.commit(1, ["x", "!b"], same_as={0: [(0, 0), (0, 1)]})
    outcome = shard.embed(1)
    assert shard.embedder.given == ["a", "!b", "x", "!b"]
    assert outcome.counts.reused == 0


def test_a_vector_is_borrowed_for_the_very_text_and_for_open_rows_alone(shard):
    shard.commit(0, ["one", "two"])
    chunks, _ = shard.chunks.chunks(SegmentKey(0, 0))
    work = SegmentWork(chunks, 2)
    vector = np.array([3.0, 4.0], np.float32)
    # The index of texts knows half of a hash: another text may have the same half.
    work.borrow(0, text_hash("two"), vector)
    assert work.wanted() == [0, 1]
    work.borrow(0, text_hash("one"), vector)
    work.borrow(0, text_hash("one"), 2 * vector)
    assert work.wanted() == [1]
    work.fill(1, vector)
    assert work.rows().vectors.tolist() == [[3.0, 4.0], [3.0, 4.0]]


def test_a_text_that_fails_ends_its_own_rows_alone(shard):
    shard.commit(0, ["a", "!b"], ["!b", "c"])
    outcome = shard.embed(0)
    assert outcome.counts.dead == 2
    assert outcome.failures == {
        1: (0, 1, "refused-text", "not this one"),
        2: (1, 0, "refused-text", "not this one"),
    }
    rows = shard.read(0)
    assert rows.origin.tolist() == [EMBEDDED, DEAD, DEAD, EMBEDDED]
    assert np.isnan(rows.vectors[[1, 2]]).all()
    assert np.isfinite(rows.vectors[[0, 3]]).all()


def test_documents_that_end_workers_die_unread(shard):
    shard.commit(0, ["a", "b"], ["c"], ["b"])
    outcome = shard.embed(0, poisoned=[0])
    assert shard.embedder.given == ["c", "b"]
    assert [(doc, index, code) for doc, index, code, _ in outcome.failures.values()] == [
        (0, 0, "killed-worker"),
        (0, 1, "killed-worker"),
    ]


def test_nothing_is_committed_when_the_embedder_cannot_be_reached(shard):
    def no_answer():
        raise TransientError("no answer")

    shard.commit(0, ["a"])
    shard.embedder.before = no_answer
    with pytest.raises(TransientError):
        shard.embed(0)
    assert shard.vectors.committed() == {}


def test_of_two_workers_that_embed_a_segment_the_second_takes_what_the_first_has(shard):
    shard.commit(0, ["a"])
    other = LettersEmbedder()
    shard.embedder.before = lambda: embed_segment(
        SegmentKey(0, 0), shard.chunks, shard.vectors, other
    )
    outcome = shard.embed(0)
    assert outcome.counts.embedded == 1
    assert shard.read(0).origin.tolist() == [EMBEDDED]


def test_torn_vectors_of_the_segment_itself_end_the_call_and_say_what_to_delete(shard):
    shard.commit(0, ["a"])
    shard.embed(0)
    tear_vectors(shard)
    with pytest.raises(DamagedFileError) as caught:
        shard.embed(0)
    assert "/indexes/an-index/vectors/c/e/s0000/00000000.parquet" in str(caught.value)


def test_a_probe_embeds_one_document_and_keeps_nothing(shard):
    shard.commit(0, ["a", "b"], ["c"])
    probe_document(SegmentKey(0, 0), 0, shard.chunks, shard.embedder)
    assert shard.embedder.given == ["a", "b"]
    assert shard.vectors.committed() == {}


def test_a_segment_without_chunks_is_embedded_without_the_model(shard):
    shard.commit(0, [], [])
    outcome = shard.embed(0)
    assert shard.embedder.given == []
    assert outcome.counts.chunks == 0
    assert shard.vectors.committed() == {0: [0]}
