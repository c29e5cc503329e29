"""Collections of a Qdrant server: what they are made of, and what one that exists was made for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from qdrant_client import models

from embedmill.errors import RefusedError
from embedmill.qdrant_settings import (
    DEFAULT_GRAPH_M,
    IndexType,
    QdrantServerSettings,
    index_field,
)
from embedmill.recipe import Metric
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.qdrant_paths import path_of

# Where a collection's own metadata says what it was made for.
_MADE_FOR = "embedmill"
_HINT = "give the index another name, or drop this collection first"
_DISTANCES: dict[Metric, models.Distance] = {
    "cosine": models.Distance.COSINE,
    "dot": models.Distance.DOT,
    "euclid": models.Distance.EUCLID,
}


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as the server describes it.

    Attributes:
        spec: that it was made for.
        records: most records in one upsert that the server allows here; None: it does not say.
        page: most records in one answer that it allows here; None: it does not say.
        graph_m: links per record of its graph; 0 while that is put off.
        indexes: paths of the payload that are indexed.
        status: green, yellow, grey or red.
    """

    spec: CollectionSpec
    records: int | None
    page: int | None
    graph_m: int
    indexes: frozenset[str]
    status: str


def collection_of(name: str, info: models.CollectionInfo) -> Collection:
    """Read what the server says about a collection.

    Raises:
        RefusedError: it was not made by us, or has no single unnamed vector of a known metric.
    """
    strict = info.config.strict_mode_config
    limited = strict if strict is not None and strict.enabled else None
    return Collection(
        spec=_spec_of(name, info),
        records=limited.upsert_max_batchsize if limited else None,
        page=limited.max_query_limit if limited else None,
        graph_m=info.config.hnsw_config.m,
        indexes=frozenset(info.payload_schema),
        status=info.status.value,
    )


def new_collection(settings: QdrantServerSettings, spec: CollectionSpec) -> dict[str, Any]:
    """Arguments of ``create_collection``; payload indexes come after it, before any record."""
    graph_m = 0 if settings.bulk_load != "off" else settings.graph_m
    return {
        "vectors_config": models.VectorParams(
            size=spec.dimension, distance=_DISTANCES[spec.metric], on_disk=settings.on_disk or None
        ),
        "shard_number": settings.shard_number,
        "replication_factor": settings.replication_factor,
        "write_consistency_factor": settings.write_consistency_factor,
        "quantization_config": _quantisation(settings),
        "hnsw_config": models.HnswConfigDiff(m=graph_m, ef_construct=settings.graph_ef_construct),
        "metadata": {
            _MADE_FOR: {
                "dimension": spec.dimension,
                "metric": spec.metric,
                "normalised": spec.normalised,
            }
        },
    }


def wanted_graph(settings: QdrantServerSettings) -> int:
    """Links per record of a finished collection's graph."""
    return DEFAULT_GRAPH_M if settings.graph_m is None else settings.graph_m


def payload_indexes(settings: QdrantServerSettings) -> Iterator[tuple[str, Any]]:
    """Paths to index and how; a graph that is built later takes account of them."""
    yield "doc_id", _schema("keyword")
    yield "chunk_index", _schema("integer")
    for entry in settings.payload_indexes:
        key, kind = index_field(entry)
        if key != settings.tenant_key:
            yield path_of(f"metadata.{key}"), _schema(kind)
    if settings.tenant_key is not None:
        yield (
            path_of(f"metadata.{settings.tenant_key}"),
            models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
        )


def _schema(kind: IndexType) -> models.PayloadSchemaType:
    return models.PayloadSchemaType(kind)


def _quantisation(settings: QdrantServerSettings) -> models.QuantizationConfig | None:
    if settings.quantisation == "scalar":
        config = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        return models.ScalarQuantization(scalar=config)
    if settings.quantisation == "binary":
        return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
    return None


def _spec_of(name: str, info: models.CollectionInfo) -> CollectionSpec:
    vectors = info.config.params.vectors
    if not isinstance(vectors, models.VectorParams):
        named = ", ".join(sorted(vectors or info.config.params.sparse_vectors or ()))
        raise RefusedError(
            f"collection {name!r} has named vectors ({named}), where one without a name is needed",
            code="spec-mismatch",
            hint=_HINT,
        )
    distance = vectors.distance.value.lower()
    made_for = (info.config.metadata or {}).get(_MADE_FOR)
    if not isinstance(made_for, dict) or distance not in get_args(Metric):
        raise RefusedError(
            f"collection {name!r} (dimension {vectors.size}, metric {distance}) does not say what "
            "it was made for: it is not one of embedmill's, or the server is older than 1.16",
            code="spec-mismatch",
            hint=_HINT,
        )
    metric = next(known for known in _DISTANCES if known == distance)
    return CollectionSpec(vectors.size, metric, normalised=bool(made_for.get("normalised")))
