"""What a provider says with its replies about the limits of the account."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

# OpenAI's, and of most who speak its language; then Cohere's of a trial key.
_REQUESTS = ("x-ratelimit-limit-requests", "x-trial-endpoint-call-limit")
_TOKENS = ("x-ratelimit-limit-tokens",)
# A limit that is whole again only later is not one by the minute: free accounts have them by day.
_MINUTE = 60.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(value: str) -> float | None:
    """Seconds of a text like ``6m0s`` or ``12ms``; None where it is none."""
    parts = _DURATION.findall(value)
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) if parts else None


@dataclass(frozen=True, slots=True)
class StatedLimits:
    """Limits by the minute; 0 where nothing is said.

    Attributes:
        requests: that may be sent.
        tokens: of them.
    """

    requests: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self:
        """What the headers of a reply say, of any reply; names are in any case that suits them."""
        return cls(
            _limit(headers, _REQUESTS, headers.get("x-ratelimit-reset-requests", "")),
            _limit(headers, _TOKENS, headers.get("x-ratelimit-reset-tokens", "")),
        )

    def then(self, later: Self) -> Self:
        """What is known after more was said."""
        return type(self)(later.requests or self.requests, later.tokens or self.tokens)

    def __str__(self) -> str:
        counts = ((self.requests, "requests"), (self.tokens, "tokens"))
        return " and ".join(f"{limit:,} {what} a minute" for limit, what in counts if limit)

    def shared(self, share: float) -> Self:
        """A part of them, of one at least."""
        return type(self)(_part(self.requests, share), _part(self.tokens, share))


UNSTATED = StatedLimits()


def _limit(headers: Mapping[str, str], names: tuple[str, ...], reset: str) -> int:
    stated = next((headers[name] for name in names if name in headers), "")
    if not stated.isdecimal() or (_seconds(reset) or 0) > _MINUTE:
        return 0
    return int(stated)


def _seconds(reset: str) -> float | None:
    return float(reset) if reset.isdecimal() else duration(reset)


def _part(limit: int, share: float) -> int:
    return max(1, int(limit * share)) if limit else 0
