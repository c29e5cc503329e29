"""The fake Weaviate's REST interface: definitions, shards and aliases."""

from __future__ import annotations

from typing import Any

from embedmill.testing.fake_api import Call, RefusedRequest, Reply, Request, RouteTable
from embedmill.testing.fault_plan import FaultPlan
from embedmill.testing.weaviate_fake_faults import Fault
from embedmill.testing.weaviate_fake_schema import (
    add_property,
    create_class,
    delete_class,
    put_alias,
)
from embedmill.testing.weaviate_fake_state import FakeState, ServerError

_ROUTES = RouteTable(
    ("GET", "/v1/meta", "meta"),
    ("GET", "/v1/schema", "schema.list"),
    ("POST", "/v1/schema", "schema.create"),
    ("GET", "/v1/schema/([^/]+)", "schema.get"),
    ("DELETE", "/v1/schema/([^/]+)", "schema.delete"),
    ("POST", "/v1/schema/([^/]+)/properties", "properties.create"),
    ("GET", "/v1/schema/([^/]+)/shards", "shards"),
    ("GET", "/v1/aliases", "aliases.list"),
    ("POST", "/v1/aliases", "aliases.create"),
    ("GET", "/v1/aliases/([^/]+)", "aliases.get"),
    ("PUT", "/v1/aliases/([^/]+)", "aliases.update"),
    ("DELETE", "/v1/aliases/([^/]+)", "aliases.delete"),
)
_REFUSALS = {
    "rate-limit": (429, "too many requests"),
    "error": (500, "panic occurred: runtime error: index out of range"),
    "bad-key": (401, "unauthorized: invalid api key"),
    "forbidden": (403, "authorization, forbidden action: user 'x' has insufficient permissions"),
    "too-large": (413, "request body too large"),
    "unavailable": (503, "no healthy upstream"),
    "not-leader": (422, "could not apply: leader not found"),
    "disk-full": (500, "apply command: write raft log: no space left on device"),
    "read-only": (422, "store is read-only"),
}


class WeaviateApi:
    """What the frame asks for; see :class:`embedmill.testing.fake_api.FakeApi`."""

    request_id_header = ""

    def __init__(self, state: FakeState, plan: FaultPlan[Fault]) -> None:
        self.plan = plan
        self._state = state

    def route_of(self, request: Request) -> tuple[str, tuple[str, ...]]:
        """Route and open parts of the path."""
        found = _ROUTES.find(request.method, request.path)
        if found is None or (found[0].startswith("aliases.") and not self._state.has_aliases):
            raise RefusedRequest(
                Reply.of_json({"code": 404, "message": f"path {request.path} was not found"}, 404)
            )
        return found

    def refuse(self, fault: Fault, request: Request) -> None:  # noqa: ARG002, the contract's
        """Refuse what is planned to be refused."""
        if fault.do in _REFUSALS:
            status, words = _REFUSALS[fault.do]
            raise _refused(words, int(fault.value or status))

    def answer(self, call: Call[Fault]) -> Reply:
        """Check the key, and do the work under the lock."""
        key = self._state.options.api_key
        if key and call.request.bearer != key:
            words = "unauthorized: invalid api key"
            raise RefusedRequest(Reply.of_json({"code": 401, "message": words}, 401))
        try:
            with self._state.lock:
                reply = self._answered(call)
        except ServerError as error:
            raise _refused(error.words, error.status) from error
        if call.fault("error-reply"):
            raise _refused("panic occurred after the work", 500)
        return reply

    def _answered(self, call: Call[Fault]) -> Reply:
        area, _, deed = call.route.partition(".")
        if area == "meta":
            options = self._state.options
            return Reply.of_json(
                {
                    "hostname": "http://[::]:8080",
                    "modules": {},
                    "version": options.version,
                    "grpcMaxMessageSize": options.max_message,
                }
            )
        if area == "aliases":
            return self._alias(deed, call)
        return self._schema(call)

    def _schema(self, call: Call[Fault]) -> Reply:
        state = self._state
        if call.route == "schema.delete":
            # Aliases are not followed here.
            delete_class(state, call.name)
            return Reply(200)
        if call.route == "schema.get":
            name = state.aliases.get(call.name, call.name)
            if name not in state.classes:
                return Reply(404)
            return Reply.of_json(state.classes[name].definition)
        return Reply.of_json(self._definitions(call))

    def _definitions(self, call: Call[Fault]) -> object:
        state = self._state
        match call.route:
            case "schema.create":
                return create_class(state, call.request.json())
            case "properties.create":
                return add_property(state, call.name, call.request.json())
            case "shards":
                return self._shards(call.name)
            case _:
                return {"classes": [one.definition for one in state.classes.values()]}

    def _shards(self, name: str) -> list[dict[str, Any]]:
        found = self._state.get(name)
        waiting = found.queued_looks
        if waiting:
            found.queued_looks -= 1
        else:
            for objects in found.objects.values():
                for stored in objects.values():
                    stored.queued = False
        status = "READONLY" if found.read_only else "INDEXING" if waiting else "READY"
        names = sorted(found.objects) if found.tenanted else ["s7Xw1ZQ3QdLm"]
        return [
            {"name": shard, "status": status, "vectorQueueSize": 100 * waiting} for shard in names
        ]

    def _alias(self, deed: str, call: Call[Fault]) -> Reply:
        state, alias = self._state, call.name
        if deed == "list":
            known = [{"alias": one, "class": name} for one, name in state.aliases.items()]
            return Reply.of_json({"aliases": known})
        if deed == "create":
            body = call.request.json()
            alias = body["alias"]
            put_alias(state, alias, body["class"], create=True)
        elif deed == "update":
            put_alias(state, alias, call.request.json()["class"], create=False)
        elif alias not in state.aliases:
            raise ServerError(f"alias {alias} not found: not found", 404)
        elif deed == "delete":
            del state.aliases[alias]
            return Reply(204)
        return Reply.of_json({"alias": alias, "class": state.aliases[alias]})


def _refused(words: str, status: int) -> RefusedRequest:
    return RefusedRequest(Reply.of_json({"error": [{"message": words}]}, status))
