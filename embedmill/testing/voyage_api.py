"""The fake Voyage server's API: routes, keys, bodies."""

from __future__ import annotations

from typing import Any

from embedmill.testing.fake_api import Call, RefusedRequest, Reply, Request, RouteTable
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fake_vectors import spoiled
from embedmill.testing.voyage_account import Account, ApiError
from embedmill.testing.voyage_embeddings import checked_request, reply_body
from embedmill.testing.voyage_faults import Fault

_ROUTES = RouteTable(
    ("POST", r"/v1/embeddings", "embeddings"),
    # Not of the real server: what was charged for.
    ("GET", r"/fake/bill", "bill"),
)


class VoyageApi:
    """Answers as Voyage does; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = ""

    def __init__(self, account: Account) -> None:
        self.plan = account.plan
        self._account = account

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """The route."""
        found = _ROUTES.find(request.method, request.path)
        if found is None:
            raise ApiError(404, "Not Found")
        return found

    def refuse(self, fault: Fault, request: Request) -> None:  # noqa: ARG002, of the contract
        """Refuse as planned."""
        wait = {"Retry-After": fault.value} if fault.value else {}
        match fault.do:
            case "rate-limit":
                raise ApiError(429, "You have exceeded the rate limit of your key.", wait)
            case "rate-limit-page":
                page = b"<html><body>Too Many Requests</body></html>"
                raise RefusedRequest(Reply(429, page, "text/html", wait))
            case "bad-key":
                raise ApiError(401, "Provided API key is invalid.")
            case "no-money":
                raise ApiError(402, "Add a payment method to your account.")
            case "error":
                raise ApiError(int(fault.value or 500), "The server had an error.")
            case _:
                return

    def answer(self, call: Call[Fault]) -> Reply:
        """Do what is asked."""
        if call.route == "bill":
            return Reply.of_json(self._account.bill.summary())
        self._refuse_key(call.request.bearer)
        return Reply.of_json(spoiled(self._embed(_json_of(call.request)), call.faults))

    def _embed(self, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
        asked = checked_request(body, self._account.options)
        record = reply_body(asked)
        self._account.bill.add(Bill.DIRECT, asked.texts, asked.tokens)
        return record

    def _refuse_key(self, key: str) -> None:
        right = self._account.options.api_key
        if not key or (right and key != right):
            raise ApiError(401, "Provided API key is invalid.")


def _json_of(request: Request) -> Any:  # noqa: ANN401, what came over the wire
    try:
        return request.json()
    except ValueError as error:
        raise ApiError(400, "The request body is not JSON.") from error
