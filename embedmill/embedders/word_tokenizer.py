"""Words as tokens: what the hashing embedder reads and counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# Words of up to 16 characters, and every other mark that is not blank by itself. A longer word
# counts as several, so that a text without spaces has a length as it has for a real model.
_TOKEN = re.compile(r"\w{1,16}|[^\w\s]")

words_of = _TOKEN.findall


def _word_count(text: str) -> int:
    return len(words_of(text))


class WordTokenizer:
    """A :class:`~embedmill.tokenizer.TokenCounter` without a model and without special tokens."""

    fingerprint = "words-1"

    @property
    def sizer(self) -> Callable[[str], int]:
        """Counts one text."""
        return _word_count

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [len(words_of(text)) for text in texts]
