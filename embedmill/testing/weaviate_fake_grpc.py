"""The fake Weaviate's gRPC interface, in the client's own messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
from weaviate.proto.v1 import (
    aggregate_pb2,
    batch_delete_pb2,
    batch_pb2,
    search_get_pb2,
    tenants_pb2,
)

from embedmill.testing.fault_plan import FaultPlan, planned
from embedmill.testing.kept_port import kept_port, port_of
from embedmill.testing.weaviate_fake_faults import Fault
from embedmill.testing.weaviate_fake_objects import put_object
from embedmill.testing.weaviate_fake_search import aggregate, delete, search
from embedmill.testing.weaviate_fake_state import FakeClass, FakeState, ServerError

_SERVICE = "weaviate.v1.Weaviate"
_CODES = grpc.StatusCode
# Instead of the work, by deed; the words are those of the server or of gRPC itself.
_REFUSALS: dict[str, tuple[grpc.StatusCode, str]] = {
    "drop": (_CODES.UNAVAILABLE, "Socket closed"),
    "html-502": (_CODES.UNAVAILABLE, "Received http2 header with status: 502"),
    "unavailable": (_CODES.UNAVAILABLE, "upstream connect error or disconnect"),
    "rate-limit": (_CODES.RESOURCE_EXHAUSTED, "too many requests: rate limit exceeded"),
    "too-large": (
        _CODES.RESOURCE_EXHAUSTED,
        "grpc: received message larger than max (5 vs. 4)",
    ),
    "error": (_CODES.INTERNAL, "panic occurred: runtime error: index out of range"),
    "bad-key": (_CODES.UNKNOWN, "extract auth: unauthorized: invalid api key"),
    "forbidden": (_CODES.PERMISSION_DENIED, "authorization, forbidden action: user 'x'"),
    "not-leader": (_CODES.UNKNOWN, "batch: leader not found"),
}
# An object's own error, by deed.
_OF_OBJECTS = {
    "read-only": "put object: import into index: store is read-only",
    "disk-full": "put object: write wal: no space left on device",
    "memory": "put object: cannot process batch: not enough memory",
    "replicas": "put object: broadcast: cannot reach enough replicas: QUORUM",
    "refuse-all": "put object: something that nobody knows",
}


class GrpcSide:
    """Serves one state; it may be ended and begun again.

    Attributes:
        port: that it serves on.
    """

    def __init__(self, state: FakeState, plan: FaultPlan[Fault], port: int = 0) -> None:
        self._state = state
        self._plan = plan
        self._ended = threading.Event()
        self._kept = kept_port(port)
        self.port = port_of(self._kept)
        self._serving: Any = self._bound()

    def begin(self) -> None:
        """Serve, on the same port as before."""
        if self._ended.is_set():
            self._ended.clear()
            self._serving = self._bound()
        self._serving.start()

    def end(self) -> None:
        """Hang up on all clients."""
        self._ended.set()
        self._serving.stop(None).wait()

    def close(self) -> None:
        """Give the port back."""
        self._kept.close()

    def _bound(self) -> Any:  # noqa: ANN401, gRPC has no types
        limits = [("grpc.max_receive_message_length", self._state.options.max_message)]
        limits.append(("grpc.max_send_message_length", self._state.options.max_message))
        # Two servers on one port would be taken for one.
        limits.append(("grpc.so_reuseport", 0))
        serving = grpc.server(ThreadPoolExecutor(8), options=limits)
        serving.add_generic_rpc_handlers((self._handlers(),))
        serving.add_insecure_port(f"127.0.0.1:{self.port}")
        return serving

    def _handlers(self) -> grpc.GenericRpcHandler:
        requests: dict[str, tuple[str, Any, Callable[..., Any]]] = {
            "BatchObjects": ("objects.batch", batch_pb2.BatchObjectsRequest, self._put),
            "BatchDelete": ("objects.delete", batch_delete_pb2.BatchDeleteRequest, self._delete),
            "Search": ("search", search_get_pb2.SearchRequest, self._search),
            "Aggregate": ("aggregate", aggregate_pb2.AggregateRequest, self._aggregate),
            "TenantsGet": ("tenants.get", tenants_pb2.TenantsGetRequest, self._tenants),
        }
        return grpc.method_handlers_generic_handler(
            _SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    self._method(route, work),
                    request_deserializer=None if self._unseen(route) else kind.FromString,
                )
                for name, (route, kind, work) in requests.items()
            },
        )

    def _method(self, route: str, work: Callable[..., Any]) -> Callable[[Any, Any], bytes]:
        def answered(request: Any, context: Any) -> bytes:  # noqa: ANN401, gRPC's
            faults = self._plan.next_of(route)
            for fault in faults:
                self._instead(fault, context)
            try:
                self._check_key(context)
                with self._state.lock:
                    reply: bytes = work(request, faults).SerializeToString()
            except ServerError as error:
                # What a server refuses has no status of its own.
                context.abort(_CODES.UNKNOWN, error.words)
            return self._spoilt(reply, faults, context)

        return answered

    def _instead(self, fault: Fault, context: Any) -> None:  # noqa: ANN401, gRPC's
        if fault.do == "slow":
            self._ended.wait(fault.seconds)
        elif fault.do in _REFUSALS:
            context.abort(*_REFUSALS[fault.do])

    def _spoilt(self, reply: bytes, faults: Sequence[Fault], context: Any) -> bytes:  # noqa: ANN401, gRPC's
        slow = planned(faults, "slow-reply")
        if slow:
            self._ended.wait(slow.seconds)
        if planned(faults, "drop-reply"):
            _abort(context, _CODES.UNAVAILABLE, "Socket closed")
        if planned(faults, "error-reply"):
            _abort(context, _CODES.INTERNAL, "panic occurred after the work")
        # The beginning of a field that is longer than what follows.
        return b"\x0a\xff\x01" if planned(faults, "cut-reply") else reply

    def _check_key(self, context: Any) -> None:  # noqa: ANN401, gRPC's
        key = self._state.options.api_key
        given = dict(context.invocation_metadata()).get("authorization", "")
        if key and not given:
            raise ServerError("extract auth: unauthenticated: anonymous access not enabled")
        if key and given != f"Bearer {key}":
            raise ServerError("extract auth: unauthorized: invalid api key")

    def _unseen(self, route: str) -> bool:
        return self._state.options.discard and route == "objects.batch"

    def _put(
        self, request: batch_pb2.BatchObjectsRequest, faults: Sequence[Fault]
    ) -> batch_pb2.BatchObjectsReply:
        if self._unseen("objects.batch"):
            return _errors({})
        if planned(faults, "wrong-index"):
            return _errors({len(request.objects) + 7: "put object: not one of yours"})
        silent, partial = planned(faults, "silent-drop"), planned(faults, "partial")
        words = next((_OF_OBJECTS[one.do] for one in faults if one.do in _OF_OBJECTS), "")
        poison = planned(faults, "poison")
        errors: dict[int, str] = {}
        for at, sent in enumerate(request.objects):
            if silent and at < silent.count:
                continue
            if words or (partial and at >= len(request.objects) // 2):
                errors[at] = words or "put object: context deadline exceeded"
            elif poison and poison.value.encode() in sent.SerializeToString():
                errors[at] = f"put object: cannot be indexed: {poison.value}"
            else:
                self._put_one(at, sent, errors)
        return _errors(errors)

    def _put_one(self, at: int, sent: batch_pb2.BatchObject, errors: dict[int, str]) -> None:
        try:
            put_object(self._state, sent)
        except ServerError as error:
            errors[at] = error.words

    def _delete(
        self, request: batch_delete_pb2.BatchDeleteRequest, faults: Sequence[Fault]
    ) -> batch_delete_pb2.BatchDeleteReply:
        partial = planned(faults, "partial")
        return delete(self._state, request, partial.count if partial else None)

    def _search(
        self, request: search_get_pb2.SearchRequest, _: Sequence[Fault]
    ) -> search_get_pb2.SearchReply:
        return search(self._state, request)

    def _aggregate(
        self, request: aggregate_pb2.AggregateRequest, faults: Sequence[Fault]
    ) -> aggregate_pb2.AggregateReply:
        reply = aggregate(self._state, request)
        lag = planned(faults, "lag")
        if lag:
            reply.single_result.objects_count -= lag.count
        return reply

    def _tenants(
        self, request: tenants_pb2.TenantsGetRequest, _: Sequence[Fault]
    ) -> tenants_pb2.TenantsGetReply:
        found = self._state.get(request.collection)
        if not found.tenanted:
            raise ServerError(f"get tenants: multi-tenancy is not enabled for class {found.name!r}")
        tenants = [
            tenants_pb2.Tenant(name=name, activity_status=_status_of(found, name))
            for name in sorted(found.objects)
        ]
        return tenants_pb2.TenantsGetReply(took=0.001, tenants=tenants)


def _status_of(found: FakeClass, tenant: str) -> Any:  # noqa: ANN401, an enum without types
    state = found.states.get(tenant, "ACTIVE")
    return getattr(tenants_pb2, f"TENANT_ACTIVITY_STATUS_{state}")


def _abort(context: Any, code: grpc.StatusCode, words: str) -> NoReturn:  # noqa: ANN401, gRPC's
    context.abort(code, words)
    raise AssertionError("an aborted call goes on")


def _errors(errors: dict[int, str]) -> batch_pb2.BatchObjectsReply:
    return batch_pb2.BatchObjectsReply(
        took=0.001,
        errors=[
            batch_pb2.BatchObjectsReply.BatchError(index=at, error=words)
            for at, words in errors.items()
        ],
    )
