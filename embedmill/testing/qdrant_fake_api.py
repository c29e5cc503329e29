"""The fake Qdrant server's API: keys, body limit, planned refusals."""

from __future__ import annotations

import orjson

from embedmill.testing.fake_api import Call, Reply, Request
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.qdrant_fake_faults import Fault
from embedmill.testing.qdrant_fake_replies import ServerError, reply_of
from embedmill.testing.qdrant_fake_routes import CHANGES, ROUTES, Work, answer
from embedmill.testing.qdrant_fake_state import FakeState

# ``service.max_request_size_mb`` of the real server, as delivered.
MAX_BODY = 32 * 2**20
_ROOT = b'{"title":"qdrant - vector search engine","version":"1.20.0"}'


class QdrantApi:
    """Answers as Qdrant does; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = ""

    def __init__(
        self,
        state: FakeState,
        plan: FaultPlan[Fault],
        *,
        api_key: str = "",
        read_key: str = "",
        discard: bool = False,
    ) -> None:
        """Answer for a state.

        Args:
            state: collections and aliases.
            plan: what goes wrong.
            api_key: that is asked for; empty: none.
            read_key: that may only read; empty: none.
            discard: answer upserts without looking at them, for measuring clients.
        """
        self.plan = plan
        self._state = state
        self._api_key = api_key
        self._read_key = read_key
        self._discard = discard

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """The route."""
        found = ROUTES.find(request.method, request.path)
        if found is None:
            raise ServerError(404, "")
        return found

    def refuse(self, fault: Fault, request: Request) -> None:  # noqa: ARG002, of the contract
        """Refuse as planned."""
        _refuse(fault)

    def answer(self, call: Call[Fault]) -> Reply:
        """Do what is asked."""
        if call.route == "root":
            # The one address without an envelope.
            return Reply(content=_ROOT)
        self._check(call)
        result = self._result(call)
        if fault := call.fault("error-reply"):
            raise ServerError(int(fault.value or 500), "Service internal error")
        return reply_of(result)

    def _result(self, call: Call[Fault]) -> object:
        if self._discard and call.route == "points.upsert":
            return {"operation_id": 1, "status": "completed"}
        content = call.request.body
        try:
            body = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError as error:
            raise ServerError(400, f"Format error in JSON body: {error}") from error
        work = Work(call.route, call.name, call.request.parameters, body, call.faults)
        return answer(self._state, work)

    def _check(self, call: Call[Fault]) -> None:
        size = len(call.request.body)
        if size > MAX_BODY:
            words = f"JSON payload ({size} bytes) is larger than allowed (limit: {MAX_BODY}"
            raise ServerError(400, f"Payload error: {words} bytes).")
        if not self._api_key:
            return
        key = call.request.headers.get("api-key") or call.request.bearer
        if not key:
            raise ServerError(401, "Must provide an API key or an Authorization bearer token")
        if key == self._read_key and key:
            if call.route in CHANGES:
                raise ServerError(403, "Forbidden: Write access is required")
        elif key != self._api_key:
            raise ServerError(401, "Invalid API key or JWT")


def _refuse(fault: Fault) -> None:
    """Refuse, where that is what is planned.

    Raises:
        ServerError: as the real server, or one that stands before it, puts it.
    """
    if fault.do == "rate-limit":
        headers = {"Retry-After": fault.value} if fault.value else {}
        words = "Rate limiting exceeded: Write rate limit exceeded, retry later"
        raise ServerError(429, words, headers)
    refusals = {
        "error": (500, "Service internal error: task panicked"),
        "bad-key": (401, "Invalid API key or JWT"),
        "forbidden": (403, "Forbidden: Write access to the collection is required"),
        "read-only": (403, "Storage locked: the storage is read-only"),
        "disk-full": (
            500,
            "Service internal error: No space left on device: WAL buffer size exceeds available "
            "disk space",
        ),
        "not-found": (404, "Not found: Collection `gone` doesn't exist!"),
    }
    if fault.do in refusals:
        status, words = refusals[fault.do]
        raise ServerError(int(fault.value or status), words)
