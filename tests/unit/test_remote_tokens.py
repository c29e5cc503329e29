"""Counting tokens for a model behind a server with its own tokenizer.json."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from embedmill.errors import RefusedError
from embedmill.openai_tokens import packing_counter, token_counter


@pytest.fixture
def path(tmp_path):
    words = {word: number for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "a", "b"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_it_counts_special_tokens_and_cuts_nothing_while_counting(path):
    counter = token_counter(str(path))
    assert counter.count(["", "a b", "a b a b a b"]) == [2, 4, 8]


@pytest.mark.parametrize(
    ("size", "kept"), [(8, "a b  a b a b"), (7, "a b  a b a"), (4, "a b"), (3, "a"), (2, "")]
)
def test_a_cut_text_counts_as_what_it_was_cut_to(path, size, kept):
    counter = token_counter(str(path))
    text = counter.cut("a b  a b a b", size)
    assert text == kept
    assert counter.count([text])[0] <= size


def test_equal_files_count_alike_on_any_machine(path, tmp_path):
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    assert token_counter(str(copy)).fingerprint == token_counter(str(path)).fingerprint


@pytest.mark.parametrize("content", [None, "no json", "{}", "[]", "7"])
def test_a_file_that_is_no_tokenizer_is_refused_and_packing_goes_on_with_a_guess(tmp_path, content):
    path = tmp_path / "some.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RefusedError, match=r"some\.json"):
        token_counter(str(path))
    assert packing_counter(str(path)).count(["words"]) == [2]
