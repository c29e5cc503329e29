"""The fake Cohere server's state: options, the bill, and what counts as an error."""

from __future__ import annotations

from dataclasses import dataclass

from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fake_api import RefusedRequest, Reply
from embedmill.testing.provider_account import ProviderAccount, ProviderOptions


class ApiError(RefusedRequest):
    """An error reply in Cohere's shape: ``message``, and an id.

    Attributes:
        status: of HTTP.
        body: as JSON.
    """

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None, *, kind: str = ""
    ) -> None:
        self.status = status
        self.body = {"id": "00000000-0000-0000-0000-000000000000", "message": message}
        if kind:
            self.body["error_type"] = kind
        super().__init__(Reply.of_json(self.body, status, headers))


@dataclass(frozen=True, slots=True)
class ServerOptions(ProviderOptions):
    """How the fake server behaves when nothing goes wrong.

    Attributes:
        request_tokens: that are too many for one request.
    """

    request_tokens: int = 1_000_000


Account = ProviderAccount[ServerOptions, Fault]
