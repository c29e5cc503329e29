"""Where the tokens of a text are those of its words, held against the tokenizer itself."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from embedmill.embedders.model_tokenizer import JsonTokenizer
from embedmill.embedders.tokenizer_parts import parts_at_blanks, parts_at_marks
from embedmill.embedders.word_tokenizer import WordTokenizer
from embedmill.openai_tokens import TokenEstimate
from embedmill.tokenizer import BLANKS, TokenWindow
from embedmill.word_measures import counting, word_measure

LETTERS = "abcdefghijklmnopqrstuvwxyzABC0123456789.,:;!?()-_/=#*\u00e9\u732b\u3002\u2581\u0120"
VOCABULARY = {
    "[UNK]": 0,
    **{letter: at for at, letter in enumerate(LETTERS, start=1)},
    **{f"##{letter}": 100 + at for at, letter in enumerate(LETTERS)},
    "the": 200,
    "##ing": 201,
    "word": 202,
}
TEXTS = st.text(
    st.sampled_from("abAB1.,=-(\u00e9\u0301\u0338\u200d\u732b\u3002\u00a0\x1c\x00\u2028")
    | st.sampled_from(BLANKS)
    | st.characters(codec="utf-8"),
    max_size=60,
)


def made(pre_tokenizer, normalizer=None, added=()):
    tokenizer = Tokenizer(
        models.WordPiece(VOCABULARY, unk_token="[UNK]", max_input_chars_per_word=20)
    )
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if added:
        tokenizer.add_tokens(list(added))
    return tokenizer


BERT = made(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())
CASED = made(
    pre_tokenizers.BertPreTokenizer(),
    normalizers.BertNormalizer(lowercase=False, strip_accents=False, handle_chinese_chars=False),
)
COMPOSING = made(
    pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
)
PLAIN = made(pre_tokenizers.Whitespace(), normalizers.NFD())
PARTING = {"bert": BERT, "cased": CASED, "composing": COMPOSING, "plain": PLAIN}
JOINING = {
    "bytes": made(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "metaspace": made(pre_tokenizers.Metaspace()),
    "none": Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]")),
    "replacing": made(pre_tokenizers.WhitespaceSplit(), normalizers.Replace(" ", "_")),
    "blank in a word": made(pre_tokenizers.WhitespaceSplit(), added=[AddedToken("new york")]),
}


def record(tokenizer):
    return orjson.loads(tokenizer.to_str())


def counter(tokenizer, folder):
    path = folder / "tokenizer.json"
    path.write_text(tokenizer.to_str())
    return JsonTokenizer(path)


@pytest.mark.parametrize("name", PARTING)
def test_a_tokenizer_that_parts_first_parts_at_blanks(name):
    assert parts_at_blanks(record(PARTING[name]))


@pytest.mark.parametrize("name", JOINING)
def test_one_that_looks_at_blanks_itself_does_not(name):
    assert not parts_at_blanks(record(JOINING[name]))


def test_only_bert_with_its_own_normaliser_parts_at_marks():
    assert parts_at_marks(record(BERT))
    assert parts_at_marks(record(CASED))
    assert not parts_at_marks(record(COMPOSING))
    composed = made(pre_tokenizers.BertPreTokenizer(), normalizers.NFC())
    assert not parts_at_marks(record(composed))
    assert not parts_at_marks(record(made(BERT.pre_tokenizer, BERT.normalizer, ["a-b"])))


@pytest.fixture(scope="module", params=sorted(PARTING))
def exact(request, tmp_path_factory):
    made = counter(PARTING[request.param], tmp_path_factory.mktemp(request.param))
    return made, word_measure(made)


def test_sums_over_words_are_the_tokens_of_the_text(exact):
    counts, measure = exact
    assert measure.adds_up

    @given(TEXTS)
    def check(text):
        words = text.translate(dict.fromkeys(map(ord, BLANKS), " ")).split(" ")
        words = [word for word in words if word]
        assert sum(measure(words)) == counts.count([text.strip(BLANKS)])[0]

    check()


@pytest.mark.parametrize("prompt", ["", "passage: ", "joins"])
def test_counting_by_words_counts_as_the_window_does(exact, prompt):
    window = TokenWindow(exact[0], 500, prompt)
    count = counting(window)

    @given(TEXTS)
    def check(text):
        assert count([text, ""]) == window.count([text, ""])

    check()


@given(TEXTS)
def test_words_as_tokens_add_up(text):
    counter, measure = WordTokenizer(), word_measure(WordTokenizer())
    words = [w for w in text.translate(dict.fromkeys(map(ord, BLANKS), " ")).split(" ") if w]
    assert sum(measure(words)) == counter.count([text])[0]


@given(TEXTS)
def test_the_estimate_adds_up_in_sixths(text):
    measure = word_measure(TokenEstimate())
    assert measure.unit == 6
    assert -(-sum(measure([text[:7], text[7:]])) // 6) == TokenEstimate().count([text])[0]


def test_other_counters_are_measured_as_in_the_middle_of_a_text(tmp_path):
    counts = counter(JOINING["bytes"], tmp_path)
    measure = word_measure(counts)
    assert measure.with_blanks
    assert not measure.adds_up
    whole, first = counts.count(["one two", "one"])
    assert list(measure(["one", " two"])) == [first, whole - first]
