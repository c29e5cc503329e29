"""The fake Cohere server's API: routes, keys, bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embedmill.testing.cohere_account import Account, ApiError
from embedmill.testing.cohere_batches import CohereBatches
from embedmill.testing.cohere_datasets import CohereDatasets
from embedmill.testing.cohere_embeddings import checked_request, reply_body, spoiled
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.cohere_jobs import CohereJobs
from embedmill.testing.fake_api import Call, Reply, Request, RouteTable
from embedmill.testing.fake_bill import Bill

_ROUTES = RouteTable(
    ("POST", r"/v2/embed", "embed"),
    ("POST", r"/v1/datasets", "datasets.create"),
    ("GET", r"/v1/datasets", "datasets.list"),
    ("GET", r"/v1/datasets/([\w-]+)", "datasets.get"),
    ("GET", r"/signed/([\w-]+)/(\d+)", "datasets.part"),
    ("POST", r"/v1/embed-jobs", "jobs.create"),
    ("GET", r"/v1/embed-jobs", "jobs.list"),
    ("GET", r"/v1/embed-jobs/([\w-]+)", "jobs.get"),
    ("POST", r"/v1/embed-jobs/([\w-]+)/cancel", "jobs.cancel"),
    ("POST", r"/v2/batches", "batches.create"),
    ("GET", r"/v2/batches", "batches.list"),
    ("GET", r"/v2/batches/([\w-]+)", "batches.get"),
    ("POST", r"/v2/batches/([\w-]+):cancel", "batches.cancel"),
    # Not of the real server: what was charged for.
    ("GET", r"/fake/bill", "bill"),
)
_TOO_FAST = "You are past the per minute request limit, please wait and try again later."


class CohereApi:
    """Answers as Cohere does; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = "x-debug-trace-id"

    def __init__(self, account: Account) -> None:
        self.plan = account.plan
        self._account = account
        self._datasets = CohereDatasets(account)
        self._jobs = CohereJobs(account, self._datasets)
        self._batches = CohereBatches(account, self._datasets)

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """The route."""
        found = _ROUTES.find(request.method, request.path)
        if found is None:
            raise ApiError(404, "page not found")
        return found

    def refuse(self, fault: Fault, request: Request) -> None:  # noqa: ARG002, of the contract
        """Refuse as planned."""
        match fault.do:
            case "rate-limit":
                raise ApiError(
                    429, _TOO_FAST, {"Retry-After": fault.value} if fault.value else None
                )
            case "bad-key":
                raise ApiError(int(fault.value or 401), "invalid api token")
            case "no-money":
                raise ApiError(402, "Please add or update your payment method")
            case "not-found":
                raise ApiError(404, "not found")
            case "too-large":
                raise ApiError(400, "invalid request: dataset is too large")
            case "error":
                raise ApiError(int(fault.value or 500), "internal server error")
            case _:
                return

    def answer(self, call: Call[Fault]) -> Reply:
        """Do what is asked."""
        if call.route == "bill":
            return Reply.of_json(self._account.bill.summary())
        if call.route == "datasets.part":
            return self._datasets.part(call)
        self._refuse_key(call.request.bearer)
        if call.route != "embed":
            return Reply.of_json(self._records(call)[call.route]())
        asked = checked_request(_json_of(call.request), self._account.options)
        wait = self._account.rates.arrived(asked.tokens, len(asked.texts))
        if wait:
            raise ApiError(429, _TOO_FAST, {"Retry-After": f"{wait:.3f}"})
        record = spoiled(reply_body(asked), call.faults)
        self._account.bill.add(Bill.DIRECT, asked.texts, asked.tokens)
        return Reply.of_json(record, headers={"num-tokens": str(asked.tokens)})

    def _records(self, call: Call[Fault]) -> dict[str, Callable[[], dict[str, Any]]]:
        datasets, jobs, batches, request = self._datasets, self._jobs, self._batches, call.request
        url = f"http://{request.headers.get('host')}"
        return {
            "datasets.create": lambda: datasets.create(request, call.faults),
            "datasets.list": lambda: datasets.listed(request.parameters, url),
            "datasets.get": lambda: datasets.get(call.name, url),
            "jobs.create": lambda: jobs.create(_json_of(request)),
            "jobs.list": jobs.listed,
            "jobs.get": lambda: jobs.get(call.name),
            "jobs.cancel": lambda: jobs.cancel(call.name),
            "batches.create": lambda: batches.create(_json_of(request)),
            "batches.list": lambda: batches.listed(request.parameters),
            "batches.get": lambda: batches.get(call.name),
            "batches.cancel": lambda: batches.cancel(call.name),
        }

    def _refuse_key(self, key: str) -> None:
        if self._account.refuses(key):
            raise ApiError(401, "invalid api token")


def _json_of(request: Request) -> Any:  # noqa: ANN401, what came over the wire
    try:
        return request.json()
    except ValueError as error:
        raise ApiError(400, "invalid request: the body is not JSON") from error
