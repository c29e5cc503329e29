"""What the embedders of all providers have in common when they are built from settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from embedmill.embedders.json_requests import JsonRequests
from embedmill.embedders.remote import READING, Waiting
from embedmill.embedders.request_limits import RequestLimits
from embedmill.rate_limiter import RateLimiter
from embedmill.settings_file import resolve_secret


class RemoteSettings(Protocol):
    """Settings of a server, whoever runs it."""

    @property
    def base_url(self) -> str:
        """Address, without the end that names what is asked for."""
        ...

    @property
    def timeout_s(self) -> float:
        """Silence after which a request counts as lost."""
        ...

    @property
    def requests_at_a_time(self) -> int:
        """That wait for a reply to begin."""
        ...

    @property
    def tokenizer(self) -> str:
        """How tokens are counted."""
        ...


def bearer(api_key: str) -> dict[str, str]:
    """The header with the key that an environment variable holds.

    Raises:
        SettingsError: it is not set.
    """
    return {"Authorization": f"Bearer {resolve_secret(api_key)}"}


def connected(
    settings: RemoteSettings,
    path: str,
    headers: Mapping[str, str],
    limiter: RateLimiter,
    waiting: Waiting,
) -> JsonRequests:
    """Requests to the end ``path`` of an address, whose replies tell the limiter of limits.

    Raises:
        SettingsError: the address is none.
    """
    return JsonRequests(
        settings.base_url.rstrip("/") + path,
        headers,
        timeout_s=settings.timeout_s,
        connections=settings.requests_at_a_time + READING,
        now=waiting.now,
        heed=limiter.heed,
    )


def request_limits(settings: RemoteSettings, texts: int, tokens: int) -> RequestLimits:
    """Limits of a request with so many texts and tokens at most."""
    return RequestLimits(texts, tokens, settings.tokenizer, settings.requests_at_a_time)
