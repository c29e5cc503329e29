"""The fake Voyage server's state: options, the bill, and what counts as an error."""

from __future__ import annotations

from dataclasses import dataclass

from embedmill.testing.fake_api import RefusedRequest, Reply
from embedmill.testing.provider_account import ProviderAccount, ProviderOptions
from embedmill.testing.voyage_faults import Fault


class ApiError(RefusedRequest):
    """An error reply in Voyage's shape: nothing but ``detail``.

    Attributes:
        status: of HTTP.
        body: as JSON.
    """

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = {"detail": detail}
        super().__init__(Reply.of_json(self.body, status, headers))


@dataclass(frozen=True, slots=True)
class ServerOptions(ProviderOptions):
    """How the fake server behaves when nothing goes wrong.

    Attributes:
        jobs_at_a_time: that are not finished.
        enqueued_tokens: over these.
    """

    jobs_at_a_time: int = 100
    enqueued_tokens: int = 1_000_000_000


Account = ProviderAccount[ServerOptions, Fault]
