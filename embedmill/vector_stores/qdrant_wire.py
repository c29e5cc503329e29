"""Records on their way to a Qdrant server: how large they are, and the bodies of requests.

All of an upsert, in processor time per 1,000 records with 900 bytes of payload (medians of 7
rounds, a server that only counts): the client's own models over REST take 57 ms at 384 components
and 233 ms at 1,536, most of it for checking floats one by one; a body that orjson writes from the
array, 28 and 67 ms; gRPC with the client's way from arrays to messages, 42 and 55 ms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson
from qdrant_client import grpc, models
from qdrant_client.conversions.conversion import payload_to_grpc
from qdrant_client.http.api_client import ApiClient
from qdrant_client.uploader.grpc_uploader import convert_vector_struct

from embedmill.payload import Payload
from embedmill.vector_store import VectorBatch

# The longest float32 in JSON: "-1.17549435e-38,".
_COMPONENT_BYTES = 16
# An id in JSON with quotes and comma, and the payload's comma.
_RECORD_BYTES = 40
# Messages of protobuf may be nested 100 deep, which is 3 per level of JSON and 4 around it.
_GRPC_LEVELS = 30


def payloads_as_json(payloads: Sequence[Payload]) -> list[bytes]:
    """Each payload as JSON, once: to measure it and to send it."""
    return [orjson.dumps(payload) for payload in payloads]


def record_sizes(dimension: int, payloads: Sequence[bytes]) -> list[int]:
    """Most bytes that each record can take in a request's body."""
    fixed = dimension * _COMPONENT_BYTES + _RECORD_BYTES
    return [fixed + len(payload) for payload in payloads]


def upsert_body(batch: VectorBatch, payloads: Sequence[bytes], rows: slice) -> bytes:
    """The body of an upsert; ``payloads`` are those of ``batch`` as JSON."""
    columns = {
        "ids": batch.ids[rows],
        "vectors": np.ascontiguousarray(batch.vectors[rows]),
        "payloads": [orjson.Fragment(payload) for payload in payloads[rows]],
    }
    return orjson.dumps({"batch": columns}, option=orjson.OPT_SERIALIZE_NUMPY)


def put_points(client: ApiClient, collection: str, body: bytes) -> str | None:
    """Upsert through the client's own connection; the status that the server gives."""
    reply = client.request(
        type_=models.InlineResponse2008,
        method="PUT",
        url="/collections/{collection_name}/points",
        headers={"Content-Type": "application/json"},
        path_params={"collection_name": collection},
        params={"wait": "true"},
        content=body,
    )
    return reply.result.status.value if reply.result else None


def fits_grpc(payloads: Sequence[bytes]) -> bool:
    """Whether these payloads, as JSON, are surely not nested too deep for a gRPC message."""
    return all(p.count(b"{") + p.count(b"[") <= _GRPC_LEVELS for p in payloads)


def upsert_message(collection: str, batch: VectorBatch, rows: slice) -> grpc.UpsertPoints:
    """The same as a gRPC message."""
    columns = zip(batch.ids[rows], batch.vectors[rows], batch.payloads[rows], strict=True)
    points = [
        grpc.PointStruct(
            id=grpc.PointId(uuid=str(record)),
            vectors=convert_vector_struct(vector),
            payload=payload_to_grpc(payload),
        )
        for record, vector, payload in columns
    ]
    return grpc.UpsertPoints(collection_name=collection, wait=True, points=points)
