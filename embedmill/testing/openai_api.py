"""The fake OpenAI server's API: routes, keys, bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import orjson

from embedmill.testing.fake_api import Call, Reply, Request, RouteTable
from embedmill.testing.fake_bill import Bill
from embedmill.testing.fake_vectors import spoiled
from embedmill.testing.openai_account import Account, ApiError, ServerOptions, StoredFile
from embedmill.testing.openai_downloads import content_reply
from embedmill.testing.openai_embeddings import checked_request, reply_body
from embedmill.testing.openai_faults import Fault
from embedmill.testing.openai_jobs import Jobs
from embedmill.testing.openai_multipart import MultipartReader
from embedmill.testing.openai_planned import refuse
from embedmill.testing.request_rates import rate_headers

_ROUTES = RouteTable(
    ("POST", r"/v1/files", "files.create"),
    ("GET", r"/v1/files", "files.list"),
    ("GET", r"/v1/files/([\w-]+)", "files.get"),
    ("GET", r"/v1/files/([\w-]+)/content", "files.content"),
    ("DELETE", r"/v1/files/([\w-]+)", "files.delete"),
    ("POST", r"/v1/batches", "batches.create"),
    ("GET", r"/v1/batches", "batches.list"),
    ("GET", r"/v1/batches/([\w-]+)", "batches.get"),
    ("POST", r"/v1/batches/([\w-]+)/cancel", "batches.cancel"),
    ("POST", r"/v1/embeddings", "embeddings"),
    # Not of the real server: what was charged for.
    ("GET", r"/fake/bill", "bill"),
)


class OpenAIApi:
    """Answers as OpenAI does; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = "x-request-id"

    def __init__(self, account: Account, jobs: Jobs) -> None:
        self.plan = account.plan
        self._account = account
        self._jobs = jobs

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """The route."""
        found = _ROUTES.find(request.method, request.path)
        if found is None:
            raise ApiError(404, f"Invalid URL ({request.method} {request.path})")
        return found

    def refuse(self, fault: Fault, request: Request) -> None:  # noqa: ARG002, of the contract
        """Refuse as planned."""
        refuse(fault)

    def answer(self, call: Call[Fault]) -> Reply:
        """Do what is asked."""
        if call.route == "bill":
            return Reply.of_json(self._account.bill.summary())
        if call.route == "embeddings" and self._account.options.canned:
            # What this takes is added to the latency that a client is measured against.
            asked = orjson.loads(call.request.body)
            return _canned(asked["model"], len(asked["input"]), asked.get("dimensions"))
        body = self._body(call)
        self._refuse_key(call.request.bearer)
        if call.route == "files.content":
            asked = call.request.headers.get("range") if self._account.options.ranges else None
            return content_reply(self._account.file(call.name), asked, call.faults)
        if call.route == "embeddings":
            return _embedded(self._account, body, call.faults)
        record = self._records(call, body)[call.route]()
        return Reply.of_json(spoiled(record, call.faults))

    def _body(self, call: Call[Fault]) -> Any:  # noqa: ANN401, what came over the wire
        if call.route == "files.create":
            return self._received(call.request)
        try:
            return call.request.json()
        except ValueError as error:
            raise ApiError(400, "We could not parse the JSON body of your request.") from error

    def _received(self, request: Request) -> StoredFile:
        file = self._account.new_file("", "")
        for name, filename, content in MultipartReader(request).parts():
            if name == "file":
                file.name = filename
                with file.path.open("wb") as out:
                    out.writelines(content)
            else:
                value = b"".join(content).decode("utf-8", "replace")
                file.purpose = value if name == "purpose" else file.purpose
        return file

    def _refuse_key(self, key: str) -> None:
        if self._account.refuses(key):
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")

    def _records(
        self,
        call: Call[Fault],
        body: Any,  # noqa: ANN401, what came over the wire
    ) -> dict[str, Callable[[], dict[str, Any]]]:
        account, jobs, query = self._account, self._jobs, call.request.parameters
        return {
            "files.create": lambda: account.keep(body),
            "files.list": lambda: account.list_files(query),
            "files.get": lambda: account.file(call.name).record(),
            "files.delete": lambda: account.delete_file(call.name),
            "batches.create": lambda: jobs.create(body),
            "batches.list": lambda: jobs.list(query),
            "batches.get": lambda: jobs.get(call.name),
            "batches.cancel": lambda: jobs.cancel(call.name),
        }


@cache
def _canned(model: str, count: int, dimensions: int | None) -> Reply:
    body = {"model": model, "encoding_format": "base64", "dimensions": dimensions}
    texts = [f"text number {number}" for number in range(count)]
    return Reply.of_json(reply_body(body, texts, 10 * count, ServerOptions()))


def _embedded(
    account: Account,
    body: Any,  # noqa: ANN401, what came over the wire
    faults: Sequence[Fault],
) -> Reply:
    texts, counts = checked_request(body, account.options)
    tokens = sum(counts)
    wait = account.rates.arrived(tokens, len(texts))
    headers = rate_headers(account.rates)
    if wait:
        raise ApiError(
            429,
            _too_much(body["model"], tokens, account.rates.limits.tokens),
            kind="requests",
            code="rate_limit_exceeded",
            headers={"retry-after": f"{wait:.3f}", **headers},
        )
    record = reply_body(body, texts, tokens, account.options)
    account.bill.add(Bill.DIRECT, texts, tokens)
    return Reply.of_json(spoiled(record, faults), headers=headers)


def _too_much(model: str, tokens: int, limit: int | None) -> str:
    if limit is not None and tokens > limit:
        return (
            f"Request too large for {model} on tokens per min (TPM): Limit {limit}, Requested "
            f"{tokens}. The input or output tokens must be reduced in order to run successfully."
        )
    return f"Rate limit reached for {model}"
