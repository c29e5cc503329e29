"""Which chunk of a run had a text first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill import text_index
from embedmill.document import text_hash
from embedmill.segment import MAX_SEGMENT_CHUNKS, SegmentKey
from embedmill.text_index import Loan, TextIndex

texts = st.sampled_from([f"text {n}" for n in range(40)])


@settings(max_examples=100)
@given(
    segments=st.lists(st.lists(texts, max_size=8), max_size=30),
    beginning=st.sampled_from([0, 7, MAX_SEGMENT_CHUNKS - 8]),
)
def test_a_text_is_lent_by_the_first_segment_that_has_it(monkeypatch, segments, beginning):
    with monkeypatch.context() as patch:
        patch.setattr(text_index, "_SMALL", 5)
        index, first = TextIndex(), {}
        for number, words in enumerate(segments):
            key = SegmentKey(number % 3, number)
            rows = list(range(beginning, beginning + len(words)))
            loans = index.add(key, b"".join(map(text_hash, words)), rows)
            assert loans == [
                Loan(row, *first[word])
                for row, word in zip(rows, words, strict=True)
                if word in first
            ]
            for row, word in zip(rows, words, strict=True):
                first.setdefault(word, (key, row))
        assert len(index) == len(first)
