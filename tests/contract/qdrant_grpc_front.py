"""Upserts over gRPC into the fake server, in the client's own messages."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from qdrant_client import grpc as messages
from qdrant_client.conversions.conversion import grpc_to_payload

from embedmill.testing.qdrant_fake_replies import ServerError
from embedmill.testing.qdrant_fake_routes import Work, answer

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.OUT_OF_RANGE,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
}
STATUSES = {
    "acknowledged": messages.UpdateStatus.Acknowledged,
    "completed": messages.UpdateStatus.Completed,
    "wait_timeout": messages.UpdateStatus.WaitTimeout,
}


class Front:
    """Answers upserts out of a fake server's state.

    Attributes:
        calls: upserts so far.
        refusals: (status, words) of the next upserts, in order; nothing is done for them.
        retry_after: that goes with a 429.
        deeds: faults of the next upserts, whose work is done.
    """

    def __init__(self, server):
        self.calls = 0
        self.refusals = []
        self.retry_after = ""
        self.deeds = []
        self._server = server

    def refuse(self):
        if self.refusals:
            raise ServerError(*self.refusals.pop(0))

    def upsert(self, message, context):
        self.calls += 1
        try:
            self.refuse()
            points = [
                {
                    "id": point.id.uuid,
                    "vector": list(point.vectors.vector.dense.data),
                    "payload": grpc_to_payload(point.payload),
                }
                for point in message.points
            ]
            body = {"points": points}
            query = {"wait": str(message.wait).lower()}
            faults = [self.deeds.pop(0)] if self.deeds else []
            work = Work("points.upsert", message.collection_name, query, body, faults)
            status = answer(self._server.state, work)["status"]
        except ServerError as error:
            if self.retry_after:
                context.set_trailing_metadata([("retry-after", self.retry_after)])
            context.abort(CODES[error.status], error.words)
        result = messages.UpdateResult(operation_id=1, status=STATUSES[status])
        return messages.PointsOperationResponse(result=result, time=0.0)


@contextmanager
def grpc_front(server):
    """Serve on a port of its own; yields the front and the port."""
    front = Front(server)
    handler = grpc.unary_unary_rpc_method_handler(
        front.upsert,
        request_deserializer=messages.UpsertPoints.FromString,
        response_serializer=messages.PointsOperationResponse.SerializeToString,
    )
    unlimited = [("grpc.max_receive_message_length", -1)]
    serving = grpc.server(ThreadPoolExecutor(2), options=unlimited)
    generic = grpc.method_handlers_generic_handler("qdrant.Points", {"Upsert": handler})
    serving.add_generic_rpc_handlers((generic,))
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    try:
        yield front, port
    finally:
        serving.stop(None).wait()
