"""What requests to a server may be, as it states it and as it turns out."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Self

# Requests of full size that are taken before a larger one is tried; each refusal doubles it.
_PATIENCE = 16


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

    def exceeded_by(self, texts: int, tokens: int) -> bool:
        """Whether a request is more than these limits allow."""
        return texts > self.texts or tokens > self.tokens

    def above(self, texts: int, tokens: int) -> Self:
        """Limits that allow such a request as well, and no more than that: it was taken."""
        return replace(self, texts=max(self.texts, texts), tokens=max(self.tokens, tokens))

    def doubled(self, most: Self) -> Self:
        """Twice as much, but no more than ``most``."""
        return replace(
            self,
            texts=min(2 * self.texts, most.texts),
            tokens=min(2 * self.tokens, most.tokens),
        )


class LearnedLimits:
    """What the next request may be: as stated, or less where one was refused that passed in parts.

    Why it was refused is a guess: a limit that nobody states, or the state of the server then. So
    after some requests one is made twice as large again, up to what is stated. Each time that is
    refused, twice as many have to be taken before the next: of n requests about log2(n) are in
    vain. For several threads.
    """

    def __init__(self, stated: RequestLimits) -> None:
        self._stated = self._now = stated
        self._patience = _PATIENCE
        # Full requests since something was learned.
        self._taken = 0
        self._trying = False
        self._lock = threading.Lock()

    def next(self) -> RequestLimits:
        """Limits of the next request."""
        with self._lock:
            if self._now == self._stated or self._taken < self._patience:
                return self._now
            self._taken, self._trying = 0, True
            return self._now.doubled(self._stated)

    def taken(self, texts: int, tokens: int) -> None:
        """A request passed."""
        with self._lock:
            if self._now.exceeded_by(texts, tokens):
                self._now = self._now.above(texts, tokens)
                self._taken, self._trying = 0, False
            elif self._now.exceeded_by(2 * texts, 2 * tokens):
                self._taken += 1

    def refused(self, texts: int, tokens: int) -> bool:
        """A request was refused, and passed in parts; True when later ones are smaller for it."""
        with self._lock:
            self._taken = 0
            if self._trying and self._now.exceeded_by(texts, tokens):
                self._patience, self._trying = 2 * self._patience, False
                return False
            before, self._now = self._now, self._now.below(texts, tokens)
            return self._now != before
