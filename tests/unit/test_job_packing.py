"""Packing: every open row once, in order, under every limit."""

import re

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.batch_provider import BatchLimits
from embedmill.job_packing import Packer
from embedmill.job_rows import FLYING, OPEN, SegmentRows
from embedmill.testing.job_rehearsal import KNOWN, TEMPLATE, JobRehearsal


class Packing:
    """A packer over segments whose texts say how many tokens they have."""

    folder = None

    def __init__(self, segments, limits, *, inputs=1, known=KNOWN):
        self.made = JobRehearsal(limits=limits)
        self.keys = [self.made.add(n % 2, n // 2, texts) for n, texts in enumerate(segments)]
        self.packer = Packer(
            self.made.chunks,
            TEMPLATE,
            limits,
            self.folder,
            inputs_per_request=inputs,
            canaries=known,
        )
        self.rows = [self.rows_of(key) for key in self.keys]

    def rows_of(self, key):
        tokens = self.made.chunks.chunks(key)[0].column("token_count").to_numpy()
        rows = SegmentRows.of(key, (), tokens)
        rows.state[:] = OPEN
        return rows

    def all_files(self, room=None):
        """Pack until nothing is left, as the runner does; what was packed flies."""
        files = []
        while (packed := self.packer.pack(self.rows, room)) is not None:
            files.append(packed)
            by_key = {rows.key: rows for rows in self.rows}
            for key, some in packed.requests.rows().items():
                by_key[key].state[some] = FLYING
        return files

    def dead(self):
        return {(rows.key, row) for rows in self.rows for row in rows.dead}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setattr(Packing, "folder", tmp_path)


def lines_of(packed):
    return [orjson.loads(line) for line in packed.file.path.read_bytes().splitlines()]


def texts_of(packed):
    return [line["body"]["input"] for line in lines_of(packed)]


texts = st.lists(
    st.builds(
        lambda word, tokens: f"{word} #{tokens}",
        st.text("abcdefgh é漢", min_size=1, max_size=12).filter(str.strip),
        st.integers(1, 60),
    ),
    max_size=9,
)
limits = st.builds(
    BatchLimits,
    requests_per_file=st.none() | st.integers(3, 9),
    inputs_per_file=st.none() | st.integers(3, 12),
    bytes_per_file=st.none() | st.integers(420, 900),
    inputs_per_request=st.none() | st.integers(1, 4),
    tokens_per_input=st.none() | st.integers(20, 70),
    tokens_per_request=st.none() | st.integers(20, 90),
    enqueued_tokens=st.none() | st.integers(30, 150),
)


@given(st.lists(texts, max_size=4), limits, st.integers(1, 5))
def test_each_open_row_is_sent_once_in_order_or_dies_and_no_file_is_over_a_limit(
    segments, limits, inputs
):
    packing = Packing(segments, limits, inputs=inputs)
    sent = []
    for packed in packing.all_files(limits.enqueued_tokens):
        assert_within(packed, limits, inputs)
        sent += [place for request in packed.requests for place in request]
    everything = [(r.key, row) for r in packing.rows for row in range(len(r.tokens))]
    dead = packing.dead()
    assert len(sent) == len(set(sent))
    assert set(sent) | dead == set(everything)
    assert not set(sent) & dead
    for key in packing.keys:
        rows = [row for place, row in sent if place == key]
        if inputs == 1:
            assert rows == sorted(rows)


def assert_within(packed, limits, inputs):
    records = lines_of(packed)
    count = [len(record["body"]["input"]) for record in records]
    tokens = [
        sum(int(re.search(r"#(\d+)", text)[1]) for text in record["body"]["input"])
        for record in records[packed.canaries :]
    ]
    assert len(records) <= (limits.requests_per_file or 10**9)
    assert sum(count) <= (limits.inputs_per_file or 10**9)
    assert packed.file.bytes <= (limits.bytes_per_file or 10**9)
    assert max(count) <= min(inputs, limits.inputs_per_request or inputs)
    assert max(tokens) <= (limits.tokens_per_request or 10**9)
    assert packed.file.tokens <= (limits.enqueued_tokens or 10**9)
    ids = [record["custom_id"] for record in records]
    assert len(set(ids)) == len(ids)


def test_a_request_names_its_first_row():
    packing = Packing([["a", "b", "c"], ["d"]], BatchLimits(), inputs=2)
    (packed,) = packing.all_files()
    ids = [line["custom_id"] for line in lines_of(packed)]
    assert ids == ["canary.0", "canary.1", "0.0.0", "0.0.2", "1.0.0"]
    assert texts_of(packed)[2:] == [["a", "b"], ["c"], ["d"]]


def test_requests_are_no_larger_than_files_that_became_smaller():
    packing = Packing([["a", "b", "c", "d", "e"]], BatchLimits(), inputs=4)
    packing.packer.limit(2)

    files = packing.all_files()

    assert [texts_of(packed)[len(KNOWN) :] for packed in files] == [
        [["a", "b"]],
        [["c", "d"]],
        [["e"]],
    ]


def test_a_lonely_row_has_a_request_of_its_own():
    packing = Packing([["a", "b", "c", "d"]], BatchLimits(), inputs=4)
    packing.rows[0].alone[1] = True
    (packed,) = packing.all_files()
    assert texts_of(packed)[2:] == [["a"], ["b"], ["c", "d"]]


@pytest.mark.parametrize(
    "limits",
    [
        BatchLimits(tokens_per_input=50),
        BatchLimits(tokens_per_request=50),
        BatchLimits(bytes_per_file=700),
        BatchLimits(enqueued_tokens=80),
    ],
)
@pytest.mark.parametrize("inputs", [1, 3])
def test_a_row_over_a_limit_dies_before_anything_is_sent(limits, inputs):
    long = "long " * 150 + "#99"
    packing = Packing([["a #5", long, "c #5"], [long]], limits, inputs=inputs)
    files = packing.all_files(limits.enqueued_tokens)
    assert packing.dead() == {(packing.keys[0], 1), (packing.keys[1], 0)}
    assert {code for rows in packing.rows for code, _ in rows.dead.values()} == {"too-large"}
    assert [t for packed in files for texts in texts_of(packed)[2:] for t in texts] == [
        "a #5",
        "c #5",
    ]


def test_a_blank_row_dies_and_its_neighbours_do_not():
    packing = Packing([["a", "  ", "c"]], BatchLimits(), inputs=3)
    (packed,) = packing.all_files()
    assert texts_of(packed)[2:] == [["a"], ["c"]]
    assert packing.rows[0].dead[1][0] == "blank"


def test_nothing_is_packed_where_there_is_no_room():
    packing = Packing([["a #50"]], BatchLimits(enqueued_tokens=100))
    assert packing.packer.pack(packing.rows, 30) is None
    assert packing.dead() == set()
    assert packing.packer.pack(packing.rows, 100) is not None


def test_a_file_that_is_written_again_is_the_same_to_the_byte():
    packing = Packing([["a", "b", "c"], ["d", "é"]], BatchLimits(), inputs=2)
    (packed,) = packing.all_files()
    again = packing.packer.again(packed.requests, packed.canaries)
    assert again.file.path != packed.file.path
    assert again.file.fingerprint == packed.file.fingerprint
    assert again.file.path.read_bytes() == packed.file.path.read_bytes()


def test_the_rows_of_a_file_can_be_read_from_their_json():
    packing = Packing([["a", "b", "c"], ["d"]], BatchLimits(), inputs=2)
    (packed,) = packing.all_files()
    record = orjson.loads(orjson.dumps(packed.requests.to_json()))
    assert type(packed.requests).from_json(record) == packed.requests
    assert len(packed.requests) == 3
    assert {key: list(rows) for key, rows in packed.requests.rows().items()} == {
        packing.keys[0]: [0, 1, 2],
        packing.keys[1]: [0],
    }


def test_known_texts_need_no_more_room_than_plain_sentences_do():
    packing = Packing([["a"]], BatchLimits(tokens_per_input=32), known=("a plain sentence. " * 5,))
    (packed,) = packing.all_files()
    assert packed.canaries == 1
    assert np.isclose(packed.file.tokens, 10 + 30)
