"""A model's own tokens, counted by the ``tokenizers`` library from its tokenizer.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence

from embedmill.embedders.tokenizer_parts import (
    LOCAL_MARKS,
    PART_AT_BLANKS,
    first_pre_tokenizer,
    parts_at_blanks,
    parts_at_marks,
)
from embedmill.errors import RefusedError
from embedmill.tokenizer import TokenCounter, WordMeasure
from embedmill.word_measures import AnchoredWords, CachedWords, PartedWords

# Known words, some 15 MB; then the cache starts anew.
_CACHE_LIMIT = 100_000
# Longer words hardly come twice, but their parts may: rules of '=', base64, minified code.
_LONGEST_WORD = 64


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer that counts everything and takes control strings for text.

    A packaged tokenizer.json may cut and pad (MiniLM's does both at 128, half its window), and
    would turn a literal ``[SEP]`` in a text into the control token.
    """
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if _lowers_case(directory):
        inner = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = NormalizerSequence([Lowercase(), *inner])
    return tokenizer


class ModelTokenizer:
    """A :class:`~embedmill.tokenizer.TokenCounter` over a model's directory."""

    def __init__(self, directory: Path) -> None:
        content = (directory / "tokenizer.json").read_bytes()
        lowered = "-lower" if _lowers_case(directory) else ""
        self.fingerprint = f"tokenizer-{blake2b(content, digest_size=8).hexdigest()}{lowered}"
        self._tokenizer = load_tokenizer(directory)
        self._record = orjson.loads(content)
        first = first_pre_tokenizer(self._record.get("pre_tokenizer"))
        self._sizer = (
            WordSizer(self._tokenizer, parts_at_marks=first == "BertPreTokenizer")
            if first in PART_AT_BLANKS
            else self._tokenizer
        )

    @property
    def sizer(self) -> Tokenizer | Callable[[str], int]:
        """The sum over words where that is the length; else the tokenizer itself."""
        return self._sizer

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included."""
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def word_measure(self) -> WordMeasure:
        """Exact where the tokenizer parts a text at blanks before all else."""
        return _word_measure(self, self._tokenizer, self._record)


class JsonTokenizer:
    """A :class:`~embedmill.tokenizer.TokenCounter` over a ``tokenizer.json`` without a model.

    Raises:
        RefusedError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = path.read_bytes()
            self._record = orjson.loads(content)
            known = "model" in self._record
        except (OSError, ValueError, TypeError) as error:
            raise RefusedError(
                f"embedder.tokenizer: {path} cannot be read: {error}", code="tokenizer"
            ) from error
        if not known:
            raise RefusedError(f"embedder.tokenizer: {path} is no tokenizer", code="tokenizer")
        self._tokenizer = Tokenizer.from_buffer(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.fingerprint = f"tokenizer-{blake2b(content, digest_size=8).hexdigest()}"
        self._special = len(self._tokenizer.encode(""))

    @property
    def sizer(self) -> Tokenizer | Callable[[str], int]:
        """The tokenizer itself."""
        return self._tokenizer

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included."""
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def word_measure(self) -> WordMeasure:
        """Exact where the tokenizer parts a text at blanks before all else."""
        return _word_measure(self, self._tokenizer, self._record)

    def cut(self, text: str, size: int) -> str:
        """The beginning that is ``size`` tokens, special ones included."""
        room = size - self._special
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= room:
            return text
        return text[: offsets[room - 1][1]] if room > 0 else ""


class WordSizer:
    """Counts a text as the sum over its words, each of them tokenised once.

    The splitting library asks for the length of each text some ten times over, in parts; this
    makes it 8 to 20 times as fast as with the tokenizer, at equal cuts.

    Args:
        tokenizer: parts a text at its blanks and loses these.
        parts_at_marks: it also takes each ASCII mark for a word.
    """

    def __init__(self, tokenizer: Tokenizer, *, parts_at_marks: bool) -> None:
        self._tokenizer = tokenizer
        self._parts_at_marks = parts_at_marks
        self._lengths = _Lengths(self._length)

    def __call__(self, text: str) -> int:
        """Tokens of ``text`` without special tokens."""
        if len(self._lengths) > _CACHE_LIMIT:
            self._lengths.clear()
        return sum(map(self._lengths.__getitem__, text.split()))

    def _length(self, word: str) -> int:
        if len(word) > _LONGEST_WORD and self._parts_at_marks:
            parts = LOCAL_MARKS.findall(word)
            if len(parts) > 1:
                return sum(map(self._lengths.__getitem__, parts))
        return len(self._tokenizer.encode(word, add_special_tokens=False))


class _Lengths(dict[str, int]):
    """Lengths of words; asks for those it does not know."""

    def __init__(self, length_of: Callable[[str], int]) -> None:
        super().__init__()
        self._length_of = length_of

    def __missing__(self, word: str) -> int:
        length = self._length_of(word)
        if len(word) <= _LONGEST_WORD:
            self[word] = length
        return length


def _word_measure(
    counter: TokenCounter, tokenizer: Tokenizer, record: dict[str, Any]
) -> WordMeasure:
    if not parts_at_blanks(record):
        return AnchoredWords(counter)

    def lengths_of(words: list[str]) -> list[int]:
        return list(map(len, tokenizer.encode_batch_fast(words, add_special_tokens=False)))

    return CachedWords(
        PartedWords(lengths_of, LOCAL_MARKS) if parts_at_marks(record) else lengths_of
    )


def _lowers_case(directory: Path) -> bool:
    """Whether the model lower-cases by itself, before its tokenizer does what it does."""
    path = directory / "sentence_bert_config.json"
    return path.is_file() and bool(orjson.loads(path.read_bytes()).get("do_lower_case"))
