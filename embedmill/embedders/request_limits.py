"""What requests to a server may be, as it states it and as it turns out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What requests to a server may be.

    Attributes:
        texts: in one request.
        tokens: in one request.
        tokenizer: how tokens are counted; see ``packing_counter``.
        under_way: requests of this embedder that wait for the provider at a time.
    """

    texts: int
    tokens: int
    tokenizer: str
    under_way: int = 1

    def below(self, texts: int, tokens: int) -> Self:
        """Limits that have a request of so many texts and tokens sent in two.

        Which of both was too much for the server is a guess: what came nearer to its limit here.
        Where that is wrong, the next such request is refused as well, and guessed about again.
        """
        if texts * self.tokens >= tokens * self.texts:
            return replace(self, texts=min(self.texts, max(1, texts // 2)))
        return replace(self, tokens=min(self.tokens, max(1, tokens // 2)))
