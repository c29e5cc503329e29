"""Replay: dead rows go the same way again; what was paid for is not paid for again."""

import pytest

from embedmill.document import record_id
from embedmill.embedder import EmbeddedTexts
from embedmill.errors import PermanentError
from embedmill.vector_store import Rejection
from pipelines.summary import summary


class Moody:
    """Fails texts with a word, as long as the mood lasts."""

    def __init__(self, real, mood, given):
        self._real, self.recipe = real, real.recipe
        self._mood, self._given = mood, given

    def embed(self, texts, role):
        self._given += texts if role == "document" else []
        done = self._real.embed(texts, role)
        bad = [at for at, text in enumerate(texts) if self._mood and "bad" in text]
        vectors = done.vectors.copy()
        vectors[bad] = float("nan")
        failures = {at: PermanentError("not now", code="moody") for at in bad}
        return EmbeddedTexts(vectors, {**done.failures, **failures}, done.token_count)


class Fussy:
    """A store that refuses texts with a word, as long as the mood lasts."""

    def __init__(self, real, mood):
        self._real, self._mood = real, mood

    def __getattr__(self, name):
        return getattr(self._real, name)

    def upsert(self, collection, batch):
        rows = range(len(batch.ids))
        bad = [n for n in rows if self._mood and "ugly" in batch.payloads[n]["text"]]
        self._real.upsert(collection, batch.take([n for n in rows if n not in bad]))
        return [Rejection(row, "fussy", "not now") for row in bad]


@pytest.fixture
def moody(small_index):
    index = small_index()
    index.mood, index.given = ["in a mood"], []
    index.wrappers = {
        "embedder": lambda real: Moody(real, index.mood, index.given),
        "store": lambda real: Fussy(real, index.mood),
    }
    # Chunks of four words.
    index.ingest({"a": "one two three four\n\nbad six", "b": "ugly", "c": "fine"})
    return index


def test_chunks_that_died_are_tried_again_from_the_workspace_without_the_source(moody):
    assert {x.letter.code for x in moody.open_letters()} == {"moody", "fussy"}
    for path in moody.folder.iterdir():
        path.unlink()
    moody.mood.clear()
    moody.given.clear()

    report = moody.replay()

    assert moody.given == ["bad six"]
    assert (report.chunks.embedded, report.chunks.reused) == (1, 2)
    assert moody.open_letters() == []
    assert moody.ids() == {record_id(*place) for place in [("a", 0), ("a", 1), ("b", 0), ("c", 0)]}
    assert report.live_records == report.stored_records == 4


def test_chunks_that_die_again_keep_their_letters_open(moody):
    report = moody.replay()
    assert report.status == "partial"
    assert (report.chunks.dead, report.records.rejected) == (1, 1)
    assert sorted(x.runs for x in moody.open_letters()) == [2, 2]
    assert report.live_records == report.stored_records == 2


def test_a_replay_deletes_nothing_however_little_it_reads(small_index):
    index = small_index()
    index.ingest([{"id": "kept", "text": "x"}, {"id": "gone", "text": "x"}, {"id": "bad"}])
    index.write([{"id": "kept", "text": "x"}, {"id": "bad", "text": "y"}])
    report = index.replay()
    assert report.documents.removed == 0
    assert index.documents().keys() == {"kept", "gone", "bad"}


def test_a_replay_counts_what_the_index_holds(moody):
    moody.mood.clear()
    moody.replay()
    assert moody.version.counts == {"documents": 3, "records": 4, "dead_letters": 0}


def test_a_document_that_was_removed_meanwhile_stays_so(moody):
    letters = moody.open_letters()
    moody.ingest({"c": "fine"})
    moody.mood.clear()
    report = moody.replay(letters)
    assert moody.documents().keys() == {"c"}
    assert report.live_records == report.stored_records == 1


def test_a_row_that_failed_among_many_blocks_is_found_again(small_index, many_parts):
    index = small_index()
    rows = [{"id": f"d{n}", "text": "x"} for n in range(60)]
    index.write([*rows[:59], {"id": "d59"}], files=4)
    index.ingest()
    index.write(rows, files=4)
    assert index.replay().documents.added == 1


def test_the_next_sync_after_a_replay_has_nothing_to_do(moody):
    moody.mood.clear()
    moody.replay()
    report = moody.ingest()
    assert not report.changed_anything
    assert report.documents.unchanged == 3


def test_every_run_says_what_still_lacks_a_record(moody):
    unchanged = moody.ingest()
    assert not unchanged.changed_anything
    assert (unchanged.status, unchanged.dead_letters, unchanged.lacking_records) == (
        "partial",
        0,
        2,
    )
    assert "nothing to do, but 2 chunks have no record since an earlier run" in "\n".join(
        summary(unchanged)
    )
    others = moody.ingest({"a": "one two three four\n\nbad six", "b": "ugly", "c": "finer"})
    assert (others.status, others.records.upserted, others.lacking_records) == ("partial", 1, 2)
    moody.compact()
    assert moody.ingest().lacking_records == 2
    moody.mood.clear()
    (one,) = [letter for letter in moody.open_letters() if letter.letter.doc_id == "b"]
    assert (moody.replay([one]).lacking_records, moody.replay().lacking_records) == (1, 0)
    assert (moody.ingest().status, moody.open_letters()) == ("succeeded", [])
