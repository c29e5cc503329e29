"""Upserts over gRPC, and what its statuses are in those of HTTP."""

from __future__ import annotations

import grpc  # type: ignore[import-untyped]
from qdrant_client import QdrantClient
from qdrant_client import grpc as messages

from embedmill.vector_stores.qdrant_errors import of_status
from embedmill.vector_stores.server_words import cleaned

# As the server itself pairs them. UNAVAILABLE is a gateway's 502 here: from outside it cannot be
# told whether a call that broke off had arrived.
_HTTP = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.DEADLINE_EXCEEDED: 408,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.OUT_OF_RANGE: 413,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNAVAILABLE: 502,
}
_STATUSES = {
    messages.UpdateStatus.Acknowledged: "acknowledged",
    messages.UpdateStatus.Completed: "completed",
    messages.UpdateStatus.WaitTimeout: "wait_timeout",
}


def put_over_grpc(
    client: QdrantClient,
    message: messages.UpsertPoints,
    *,
    doing: str,
    timeout_s: float,
    secret: str,
) -> str:
    """Upsert; the status that the server gives.

    Raises:
        EmbedmillError: as :func:`~embedmill.vector_stores.qdrant_errors.of_status` says.
        ResourceExhaustedResponse: the client's own, for a rate limit with a time to wait.
    """
    try:
        reply = client.grpc_points.Upsert(message, timeout=timeout_s)
    except grpc.RpcError as error:
        status = _HTTP.get(error.code(), 500)
        words = cleaned(error.details() or "", secret)
        raise of_status(status, words, doing, "write") from error
    return _STATUSES.get(reply.result.status, str(reply.result.status))
