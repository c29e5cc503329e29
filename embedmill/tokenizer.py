"""The contract of token counting: how long a text is for the model that will read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tokenizers import Tokenizer

# What parts words for every tokenizer that parts a text at all. Other blanks of Unicode stay in a
# word: tokenizers do not agree about them.
BLANKS = " \t\n\r"


class TokenCounter(Protocol):
    """Counts in one model's own tokens. Control strings in a text are text.

    Attributes:
        fingerprint: equal for counters that always count alike.
    """

    fingerprint: str

    @property
    def sizer(self) -> Tokenizer | Callable[[str], int]:
        """What the splitting library counts with; special tokens are not included."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, the model's special tokens included; nothing is cut or padded.

        The texts are Unicode: no tokenizer takes half of a surrogate pair.
        """
        ...


class WordMeasure(Protocol):
    """How long the words of a text are, each word measured once.

    Attributes:
        unit: measures that make one token.
        with_blanks: words are to be given with the blanks before them.
        adds_up: a text that neither begins nor ends with a blank has as many tokens, special ones
            not counted, as its words have together; otherwise only about as many.
    """

    unit: int
    with_blanks: bool
    adds_up: bool

    def __call__(self, words: Sequence[str]) -> Sequence[int]:
        """The measure of each word."""
        ...


@runtime_checkable
class MeasuringCounter(TokenCounter, Protocol):
    """A counter that knows how the words of a text add up to it."""

    def word_measure(self) -> WordMeasure:
        """A new measure, which nobody else uses."""
        ...


@runtime_checkable
class BulkCounter(TokenCounter, Protocol):
    """A counter that counts many texts together sooner than their words could be looked up."""

    def count_together(self, texts: Sequence[str]) -> list[int]:
        """What :meth:`count` returns."""
        ...


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """What a model reads of one text at most.

    Attributes:
        counter: counts as the model does.
        size: of the window, special tokens and prompt included.
        document_prompt: put before every document text.
    """

    counter: TokenCounter
    size: int
    document_prompt: str = ""

    @property
    def overhead(self) -> int:
        """Tokens that special tokens and the prompt take."""
        return self.counter.count([self.document_prompt])[0]

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as the model will see it: special tokens, prompt, text."""
        return self.counter.count(self.prompted(texts))

    def prompted(self, texts: Sequence[str]) -> Sequence[str]:
        """Each text with the prompt before it."""
        if not self.document_prompt:
            return texts
        return [self.document_prompt + text for text in texts]
