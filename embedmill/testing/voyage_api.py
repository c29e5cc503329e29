"""The fake Voyage server's API: routes, keys, bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embedmill.testing.fake_api import Call, RefusedRequest, Reply, Request, RouteTable
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fake_vectors import spoiled
from embedmill.testing.voyage_account import Account, ApiError
from embedmill.testing.voyage_embeddings import checked_request, reply_body
from embedmill.testing.voyage_faults import Fault
from embedmill.testing.voyage_files import VoyageFiles
from embedmill.testing.voyage_jobs import VoyageJobs

_ROUTES = RouteTable(
    ("POST", r"/v1/embeddings", "embeddings"),
    ("POST", r"/v1/files", "files.create"),
    ("GET", r"/v1/files", "files.list"),
    ("GET", r"/v1/files/([\w-]+)", "files.get"),
    ("GET", r"/v1/files/([\w-]+)/content", "files.content"),
    ("DELETE", r"/v1/files/([\w-]+)", "files.delete"),
    ("POST", r"/v1/batches", "batches.create"),
    ("GET", r"/v1/batches", "batches.list"),
    ("GET", r"/v1/batches/([\w-]+)", "batches.get"),
    ("POST", r"/v1/batches/([\w-]+)/cancel", "batches.cancel"),
    # Not of the real server: what was charged for.
    ("GET", r"/fake/bill", "bill"),
)
_TOO_FAST = "You have exceeded the rate limit of your key."


class VoyageApi:
    """Answers as Voyage does; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = ""

    def __init__(self, account: Account) -> None:
        self.plan = account.plan
        self._account = account
        self._files = VoyageFiles(account)
        self._jobs = VoyageJobs(account, self._files)

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
                raise ApiError(429, _TOO_FAST, wait)
            case "rate-limit-page":
                page = b"<html><body>Too Many Requests</body></html>"
                raise RefusedRequest(Reply(429, page, "text/html", wait))
            case "bad-key":
                raise ApiError(401, "Provided API key is invalid.")
            case "no-money":
                raise ApiError(402, "Add a payment method to your account.")
            case "not-found":
                raise ApiError(404, "Not found.")
            case "too-large":
                raise ApiError(400, "The file exceeds the maximum size.")
            case "error":
                raise ApiError(int(fault.value or 500), "The server had an error.")
            case _:
                return

    def answer(self, call: Call[Fault]) -> Reply:
        """Do what is asked."""
        if call.route == "bill":
            return Reply.of_json(self._account.bill.summary())
        self._refuse_key(call.request.bearer)
        if call.route == "embeddings":
            return Reply.of_json(spoiled(self._embed(_json_of(call.request)), call.faults))
        if call.route == "files.content":
            return self._content(call)
        return Reply.of_json(self._records(call)[call.route]())

    def _records(self, call: Call[Fault]) -> dict[str, Callable[[], dict[str, Any]]]:
        files, jobs, query = self._files, self._jobs, call.request.parameters
        return {
            "files.create": lambda: files.receive(call.request),
            "files.list": lambda: files.listed(query),
            "files.get": lambda: files.get(call.name).record(),
            "files.delete": lambda: files.delete(call.name),
            "batches.create": lambda: jobs.create(_json_of(call.request)),
            "batches.list": lambda: jobs.listed(query),
            "batches.get": lambda: jobs.get(call.name),
            "batches.cancel": lambda: jobs.cancel(call.name),
        }

    def _content(self, call: Call[Fault]) -> Reply:
        """The whole file: parts of one cannot be asked for."""
        content = self._files.get(call.name).content
        cut = call.fault("cut")
        sent = content[: cut.count] if cut else content
        return Reply(200, sent, "application/octet-stream", stated=len(content))

    def _embed(self, body: Any) -> dict[str, Any]:  # noqa: ANN401, what came over the wire
        asked = checked_request(body, self._account.options)
        wait = self._account.rates.arrived(asked.tokens, len(asked.texts))
        if wait:
            raise ApiError(429, _TOO_FAST, {"Retry-After": f"{wait:.3f}"})
        record = reply_body(asked)
        self._account.bill.add(Bill.DIRECT, asked.texts, asked.tokens)
        return record

    def _refuse_key(self, key: str) -> None:
        if self._account.refuses(key):
            raise ApiError(401, "Provided API key is invalid.")


def _json_of(request: Request) -> Any:  # noqa: ANN401, what came over the wire
    try:
        return request.json()
    except ValueError as error:
        raise ApiError(400, "The request body is not JSON.") from error
