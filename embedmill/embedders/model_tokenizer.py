"""A model's own tokens, counted by the ``tokenizers`` library from its tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import orjson
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as NormalizerSequence


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


def _lowers_case(directory: Path) -> bool:
    """Whether the model lower-cases by itself, before its tokenizer does what it does."""
    path = directory / "sentence_bert_config.json"
    return path.is_file() and bool(orjson.loads(path.read_bytes()).get("do_lower_case"))


class ModelTokenizer:
    """A :class:`~embedmill.tokenizer.TokenCounter` over a model's directory."""

    def __init__(self, directory: Path) -> None:
        content = (directory / "tokenizer.json").read_bytes()
        lowered = "-lower" if _lowers_case(directory) else ""
        self.fingerprint = f"tokenizer-{blake2b(content, digest_size=8).hexdigest()}{lowered}"
        self._tokenizer = load_tokenizer(directory)

    @property
    def sizer(self) -> Tokenizer:
        """The tokenizer itself, which the splitting library calls without going through Python."""
        return self._tokenizer

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included."""
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(list(texts))]
