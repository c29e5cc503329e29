"""Dead letters: one for each failed row, found again, and closed when the row is put right."""

import random
from dataclasses import replace

import pytest

from embedmill.dead_letter import DeadLetter, read_letters, write_letters
from embedmill.errors import DamagedFileError
from embedmill.open_letters import grouped
from embedmill.testing.memory_workspace import MemoryWorkspace

LETTER = DeadLetter(
    stage="parse",
    doc_id="a.md",
    uri="docs/a.md",
    code="encoding",
    error="PermanentError",
    message="not utf-8",
    chunk_index=-1,
    shard=3,
    segment=-1,
    attempts=1,
    run="20310101T000000Z",
    time="2031-01-01T00:00:00+00:00",
    version="v1",
)
# Line separators that are no line ends, quotes, and text outside the basic plane.
ODD = 'a\u2028b\u2029c\x85d\x0b"e"\\f\x00 👩‍👩‍👧'


@pytest.fixture
def workspace():
    return MemoryWorkspace()


def write(workspace, *letters, run="r1"):
    return write_letters(workspace, "an-index", run, [replace(x, run=run) for x in letters])


def read(workspace, run=None):
    return list(read_letters(workspace, "an-index", run))


def test_letters_read_back_as_they_were_whatever_they_say(workspace):
    letters = [LETTER, replace(LETTER, doc_id=ODD, uri=ODD, message=ODD, code="json")]
    assert write(workspace, *letters) == 2
    assert read(workspace) == [replace(x, run="r1") for x in letters]


def test_no_letters_are_no_file(workspace):
    assert write(workspace) == 0
    assert workspace.files == {}


def test_the_same_failures_are_written_once_in_a_run(workspace):
    write(workspace, LETTER)
    write(workspace, replace(LETTER, time="later"))
    assert len(workspace.files) == 1
    # In other company too: a shard that is scanned again has other blocks.
    write(workspace, LETTER, replace(LETTER, doc_id="b.md"))
    assert [x.doc_id for x in read(workspace)] == ["a.md", "b.md"]


def test_each_run_keeps_letters_of_its_own(workspace):
    write(workspace, LETTER, run="r1")
    write(workspace, LETTER, run="r2")
    assert [x.run for x in read(workspace)] == ["r1", "r2"]
    assert [x.run for x in read(workspace, "r2")] == ["r2"]


def test_an_id_is_of_the_row_and_the_cause_and_of_nothing_else():
    same = replace(LETTER, run="other", time="other", message="other", attempts=9, shard=1)
    assert same.id == LETTER.id
    for other in (
        replace(LETTER, doc_id="b.md"),
        replace(LETTER, code="json"),
        replace(LETTER, stage="read"),
        replace(LETTER, chunk_index=0),
    ):
        assert other.id != LETTER.id


def test_a_row_without_an_id_is_known_by_its_place():
    nameless = replace(LETTER, doc_id="", uri="rows.jsonl:4")
    assert nameless.id != replace(nameless, uri="rows.jsonl:5").id


def test_rows_that_repeat_an_id_have_a_letter_each():
    first = replace(LETTER, code="duplicate-id", uri="rows.jsonl:4")
    assert first.id != replace(first, uri="rows.jsonl:5").id


@pytest.mark.parametrize("line", [b'{"stage": "pa', b"[]", b'{"stage": "parse"}', b"\xff\n"])
def test_a_damaged_line_is_named(workspace, line):
    write(workspace, LETTER)
    path = next(iter(workspace.files))
    workspace.files[path] += line
    with pytest.raises(DamagedFileError, match=f"{path}, line 2, is not a dead letter") as caught:
        read(workspace)
    assert "move the file out" in caught.value.hint


class TestOpen:
    """Which letters are open after which runs."""

    def open_now(self, index):
        return {
            (x.letter.doc_id or x.letter.uri, x.letter.code): x.runs for x in index.open_letters()
        }

    def test_a_row_that_fails_in_every_sync_is_one_open_letter(self, small_index):
        index = small_index()
        bad = [{"id": "good", "text": "x"}, {"id": "bad"}]
        for runs in (1, 2, 3):
            index.ingest(bad)
            assert self.open_now(index) == {("bad", "missing-text"): runs}

    def test_a_row_that_was_put_right_closes_its_letter(self, small_index):
        index = small_index()
        index.ingest([{"id": "good", "text": "x"}, {"id": "bad"}])
        index.ingest([{"id": "good", "text": "x"}, {"id": "bad", "text": "y"}])
        assert self.open_now(index) == {}

    def test_a_row_that_fails_for_another_reason_has_that_letter_open(self, small_index):
        index = small_index()
        index.ingest([{"id": "good", "text": "x"}, {"id": "bad"}])
        index.ingest([{"id": "good", "text": "x"}, {"id": "bad", "text": ["y"]}])
        assert self.open_now(index) == {("bad", "bad-text"): 1}

    def test_a_replay_closes_what_it_put_right_and_leaves_the_rest(self, small_index):
        index = small_index()
        good = {"id": "good", "text": "x"}
        index.ingest([good, {"id": "one"}, {"id": "two"}, {"text": "nameless"}])
        index.write([good, {"id": "one", "text": "y"}, {"id": "two"}, {"id": "named", "text": "z"}])
        report = index.replay()
        assert (report.documents.read, report.documents.added, report.documents.dead) == (3, 2, 1)
        assert self.open_now(index) == {("two", "missing-text"): 2}
        assert index.documents().keys() == {"good", "one", "named"}

    def test_a_replay_that_was_not_asked_for_everything_closes_only_what_it_took_up(
        self, small_index
    ):
        index = small_index()
        good = {"id": "good", "text": "x"}
        index.ingest([good, {"id": "one"}, {"id": "two"}])
        index.write([good, {"id": "one", "text": "y"}, {"id": "two", "text": "y"}])
        index.replay([x for x in index.open_letters() if x.letter.doc_id == "one"])
        assert self.open_now(index) == {("two", "missing-text"): 1}

    def test_letters_of_a_run_that_failed_count_too(self, small_index):
        index = small_index()
        with pytest.raises(Exception, match="the only document of this run died"):
            index.ingest([{"id": "bad"}])
        assert self.open_now(index) == {("bad", "missing-text"): 1}

    def test_the_same_id_three_times_is_two_letters(self, small_index):
        index = small_index()
        report = index.ingest([{"id": "a", "text": t} for t in "xyz"])
        assert report.dead_letters == 2
        assert sorted(x.letter.uri for x in index.open_letters()) == [
            "rows0.jsonl:2",
            "rows0.jsonl:3",
        ]


def test_groups_come_by_size(small_index):
    index = small_index()
    rows = [{"id": f"d{n}"} for n in range(3)] + [{"id": "x", "text": ["y"]}]
    random.Random(1).shuffle(rows)
    index.ingest([{"id": "good", "text": "x"}, *rows])
    assert [(group, len(letters)) for group, letters in grouped(index.open_letters())] == [
        (("read", "missing-text"), 3),
        (("read", "bad-text"), 1),
    ]
