"""Reading and deleting objects at the fake Weaviate; search compares with every vector."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from weaviate.proto.v1 import (
    aggregate_pb2,
    base_pb2,
    batch_delete_pb2,
    properties_pb2,
    search_get_pb2,
)

from embedmill.testing.weaviate_fake_filters import Test, test_of
from embedmill.testing.weaviate_fake_state import FakeClass, FakeObject, FakeState, ServerError

Vector = npt.NDArray[np.float32]
# Id, object, distance from the query.
Found = tuple[str, FakeObject, float | None]


def search(state: FakeState, request: search_get_pb2.SearchRequest) -> search_get_pb2.SearchReply:
    """Answer a search, or a page of a listing.

    Raises:
        ServerError: the server would refuse it.
    """
    found = state.get(request.collection)
    limit = request.limit or 10
    if request.offset + limit > state.options.max_results:
        raise ServerError("query maximum results exceeded")
    near = request.HasField("near_vector")
    if request.after and (near or request.HasField("filters") or request.offset):
        raise ServerError("cursor api: invalid 'after' parameter: where, near or offset are set")
    objects = _passing(state, found, request)
    hits: list[Found] = (
        _nearest(found, objects, request)
        if near
        else [(record, stored, None) for record, stored in sorted(objects)]
    )
    if request.after:
        hits = [hit for hit in hits if hit[0] > request.after]
    some = hits[request.offset : request.offset + limit]
    return search_get_pb2.SearchReply(
        took=0.001, results=[_result(found, request, hit) for hit in some]
    )


def aggregate(
    state: FakeState, request: aggregate_pb2.AggregateRequest
) -> aggregate_pb2.AggregateReply:
    """Count the objects of a collection.

    Raises:
        ServerError: something else than a count is asked for, or there is no such collection.
    """
    found = state.get(request.collection)
    if not request.objects_count or request.aggregations:
        raise ServerError("aggregate: this fake only counts")
    count = len(_passing(state, found, request))
    single = aggregate_pb2.AggregateReply.Single(objects_count=count)
    return aggregate_pb2.AggregateReply(took=0.001, single_result=single)


def delete(
    state: FakeState, request: batch_delete_pb2.BatchDeleteRequest, most: int | None = None
) -> batch_delete_pb2.BatchDeleteReply:
    """Delete what a filter matches, at most as much as the server handles at once.

    Args:
        state: of the server.
        request: as it came.
        most: objects that are really deleted.

    Raises:
        ServerError: the server would refuse it.
    """
    found = state.get(request.collection)
    if not request.HasField("filters"):
        raise ServerError("batch delete params: no filters in batch delete request")
    if found.read_only:
        raise ServerError("batch delete: store is read-only")
    objects = found.of_tenant(request.tenant)
    passes = test_of(found, request.filters)
    matched = [record for record, stored in objects.items() if passes(record, stored)]
    handled = matched[: state.options.max_results]
    failed = 0 if most is None else max(0, len(handled) - most)
    for record in handled[: len(handled) - failed]:
        del objects[record]
    told = matched if state.options.tells_all_matches else handled
    return batch_delete_pb2.BatchDeleteReply(
        took=0.001, matches=len(told), successful=len(handled) - failed, failed=failed
    )


def _passing(state: FakeState, found: FakeClass, request: Any) -> list[tuple[str, FakeObject]]:  # noqa: ANN401, two kinds of request
    everything: Test = lambda record, stored: True  # noqa: ARG005, E731, a test that is none
    passes = test_of(found, request.filters) if request.HasField("filters") else everything
    tenant = request.tenant
    if found.tenanted and tenant and tenant not in found.objects:
        raise ServerError(f'tenant not found: "{tenant}"')
    with state.lock:
        objects = list(found.of_tenant(tenant).items())
    if _of_one_copy(request):
        objects = [one for one in objects if _has_come(one[1])]
    return [(record, stored) for record, stored in objects if passes(record, stored)]


def _of_one_copy(request: Any) -> bool:  # noqa: ANN401, as above
    # Nothing that is counted has a level: whichever copy is asked answers alone.
    if isinstance(request, aggregate_pb2.AggregateRequest):
        return True
    return bool(request.consistency_level == base_pb2.CONSISTENCY_LEVEL_ONE)


def _has_come(stored: FakeObject) -> bool:
    stored.behind = max(0, stored.behind - 1)
    return not stored.behind


def _nearest(
    found: FakeClass,
    objects: Sequence[tuple[str, FakeObject]],
    request: search_get_pb2.SearchRequest,
) -> list[Found]:
    near = request.near_vector
    content = near.vector_bytes or next((one.vector_bytes for one in near.vectors), b"")
    if not content and near.vector_for_targets:
        target = near.vector_for_targets[0]
        content = target.vector_bytes or target.vectors[0].vector_bytes
    query = np.frombuffer(content, dtype="<f4")
    named = found.definition["vectorConfig"]
    target_name = next(iter(near.targets.target_vectors or near.target_vectors), "default")
    if target_name not in named:
        raise ServerError(f"vector search: no vector named {target_name!r}")
    known = found.dimensions.get(target_name, len(query))
    if len(query) != known:
        raise ServerError(f"vector search: vector lengths don't match: {known} vs {len(query)}")
    # What waits to be indexed is there, and not found.
    ready = [one for one in objects if not one[1].queued and target_name in one[1].vectors]
    metric = named[target_name]["vectorIndexConfig"]["distance"]
    distances = _distances([one[1].vectors[target_name] for one in ready], query, metric)
    order = np.argsort(distances, kind="stable")
    return [(*ready[at], float(distances[at])) for at in order]


def _distances(vectors: Sequence[Vector], query: Vector, metric: str) -> npt.NDArray[np.float64]:
    if not vectors:
        return np.empty(0)
    stored, wanted = np.stack(vectors).astype(np.float64), query.astype(np.float64)
    if metric == "l2-squared":
        return np.asarray(((stored - wanted) ** 2).sum(axis=1), dtype=np.float64)
    products = stored @ wanted
    if metric == "dot":
        return np.asarray(-products, dtype=np.float64)
    norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(wanted)
    return np.asarray(1 - products / norms, dtype=np.float64)


def _result(
    found: FakeClass, request: search_get_pb2.SearchRequest, hit: Found
) -> search_get_pb2.SearchResult:
    record, stored, distance = hit
    asked = request.metadata
    metadata = search_get_pb2.MetadataResult(id=record, id_as_bytes=UUID(record).bytes)
    if asked.distance and distance is not None:
        metadata.distance, metadata.distance_present = distance, True
    if asked.vector or asked.vectors:
        for name, vector in stored.vectors.items():
            if not asked.vectors or name in asked.vectors:
                metadata.vectors.add(name=name, vector_bytes=vector.tobytes(), type=1)
    names = list(request.properties.non_ref_properties)
    if not request.HasField("properties") or request.properties.return_all_nonref_properties:
        names = [one["name"] for one in found.definition["properties"]]
    fields = {}
    for name in names:
        known = found.property(name)
        if known is None:
            raise ServerError(
                f"no such prop with name '{name}' found in class '{found.name}' in the schema"
            )
        fields[name] = _value(known["dataType"][0], stored.properties.get(name))
    return search_get_pb2.SearchResult(
        metadata=metadata,
        properties=search_get_pb2.PropertiesResult(
            target_collection=found.name, non_ref_props=properties_pb2.Properties(fields=fields)
        ),
    )


def _value(data_type: str, value: Any) -> properties_pb2.Value:  # noqa: ANN401, any property
    if value is None:
        return properties_pb2.Value(null_value=0)
    match data_type:
        case "int":
            made = properties_pb2.Value(int_value=int(value))
        case "boolean":
            made = properties_pb2.Value(bool_value=value)
        case "number":
            made = properties_pb2.Value(number_value=value)
        case "date":
            made = properties_pb2.Value(date_value=value)
        case _ if isinstance(value, list):
            made = properties_pb2.Value(list_value=_list_value(data_type, value))
        case _:
            made = properties_pb2.Value(text_value=str(value))
    return made


def _list_value(data_type: str, values: list[Any]) -> properties_pb2.ListValue:
    if data_type == "int[]":
        content = struct.pack(f"<{len(values)}q", *map(int, values))
        return properties_pb2.ListValue(int_values=properties_pb2.IntValues(values=content))
    return properties_pb2.ListValue(text_values=properties_pb2.TextValues(values=values))
