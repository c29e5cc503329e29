"""The contract between the engine of remote embedders and one address of one provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from embedmill.embedder import Role, Vectors
from embedmill.errors import PermanentError


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought, row for row of the texts that were sent.

    Attributes:
        vectors: checked against the recipe; NaN where the text failed.
        failures: by row.
        tokens: charged for; 0 where the server does not say.
    """

    vectors: Vectors
    failures: Mapping[int, PermanentError]
    tokens: int


class Pending(Protocol):
    """A reply that has begun: the provider has done its work."""

    def read(self) -> AbstractContextManager[memoryview]:
        """All of it, until the context ends: the memory is used again for other replies.

        Raises:
            TransientError: it broke off.
        """
        ...


class Sending(Protocol):
    """A request; it may be sent again."""

    def __call__(self) -> Pending:
        """Send it, and wait until the reply begins.

        Raises:
            PermanentError: the server refuses this request for what it holds.
            RateLimitedError: too much was asked for of late.
            TransientError: no reply.
            StopRunError: key, money, settings: no request can succeed.
        """
        ...


class Endpoint(Protocol):
    """One address of one provider. Several threads may use it at a time."""

    def request(self, texts: Sequence[str], role: Role) -> Sending:
        """One request for vectors, written out so that sending it takes no more work."""
        ...

    def answer(self, reply: Pending, texts: Sequence[str]) -> Answer:
        """Read the reply: an answer for each text, or none for any.

        Raises:
            TransientError: it broke off, or cannot be used.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
