"""Writing records with nothing but a store's own client, in the fastest loops that we know.

Each loop takes the records as a person would have them: an array of vectors, ids, and metadata as
dictionaries of the store's own kind. What the client wants them turned into is part of the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from embedmill.payload import Payload
from embedmill.vector_store import VectorBatch


def _as_it_is(payload: Payload) -> dict[str, Any]:
    return payload


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop over a store's client.

    Attributes:
        write: the records of a batch.
        finish: what it does after the last.
        metadata: a payload as the store has it; made before, as a person's is.
    """

    write: Callable[[VectorBatch], object]
    finish: Callable[[], object] | None = None
    metadata: Callable[[Payload], dict[str, Any]] = _as_it_is


# Of a place (an address or a folder) and the dimension of the vectors.
Maker: TypeAlias = Callable[[str, int], Loop]


def _parts(batch: VectorBatch, size: int) -> Iterator[VectorBatch]:
    for start in range(0, len(batch.ids), size):
        rows = slice(start, start + size)
        yield VectorBatch(batch.ids[rows], batch.vectors[rows], batch.payloads[rows])


def _qdrant(size: int, url: str, dimension: int) -> Loop:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(url=url, check_compatibility=False, timeout=60)
    vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
    client.create_collection(f"bare-{size}", vectors_config=vectors)

    def write(batch: VectorBatch) -> None:
        for part in _parts(batch, size):
            points = models.Batch(
                ids=list(map(str, part.ids)),
                vectors=part.vectors.tolist(),
                payloads=list(part.payloads),
            )
            client.upsert(f"bare-{size}", points, wait=True)

    return Loop(write)


def _qdrant_uploader(size: int, url: str, dimension: int) -> Loop:  # noqa: ARG001 (as all makers)
    from qdrant_client import QdrantClient

    client = QdrantClient(url=url, check_compatibility=False, timeout=60)

    def write(batch: VectorBatch) -> None:
        client.upload_collection(
            "bare-uploader",
            vectors=batch.vectors,
            payload=batch.payloads,
            ids=list(map(str, batch.ids)),
            batch_size=size,
            wait=True,
        )

    return Loop(write)


def _pinecone(megabytes: float, url: str, dimension: int) -> Loop:
    from pinecone import Pinecone

    from embedmill.vector_stores.pinecone_metadata import metadata_of

    # A float32 as a Python float has up to 20 characters.
    size = int(megabytes * 1e6 / (dimension * 21 + 1200))
    client = Pinecone(api_key=os.environ["FAKE_STORE_KEY"], host=url)
    name = f"bare-{size}"
    field = {"type": "dense_vector", "dimension": dimension, "metric": "cosine"}
    client.indexes.create(
        name=name,
        schema={"fields": {"_values": field}},
        deployment={"deployment_type": "managed", "cloud": "aws", "region": "us-east-1"},
    )
    index = client.Index(host=client.indexes.describe(name).host or "")

    def write(batch: VectorBatch) -> None:
        for part in _parts(batch, size):
            columns = zip(part.ids, part.vectors.tolist(), part.payloads, strict=True)
            records = [{"id": str(i), "values": v, "metadata": m} for i, v, m in columns]
            index.upsert(vectors=records, namespace="bare")

    return Loop(write, metadata=metadata_of)


def _weaviate(size: int, urls: str, dimension: int) -> Loop:
    import weaviate
    from weaviate.classes.data import DataObject

    from embedmill.vector_store import CollectionSpec
    from embedmill.vector_stores.weaviate_records import properties_of
    from embedmill.vector_stores.weaviate_schema import VECTOR, Collection

    rest, grpc = (int(url.rpartition(":")[2]) for url in urls.split())
    client = weaviate.connect_to_custom(
        http_host="127.0.0.1",
        http_port=rest,
        http_secure=False,
        grpc_host="127.0.0.1",
        grpc_port=grpc,
        grpc_secure=False,
        skip_init_checks=True,
    )
    vector = {"vectorizer": {"none": {}}, "vectorIndexType": "hnsw"}
    name = f"Bare{size}"
    collection = client.collections.create_from_dict(
        {"class": name, "vectorConfig": {VECTOR: vector}}
    )
    spec = Collection(name, CollectionSpec(dimension, "cosine", normalised=True))

    def write(batch: VectorBatch) -> None:
        for part in _parts(batch, size):
            columns = zip(part.ids, part.vectors, part.payloads, strict=True)
            objects = [DataObject(p, uuid=i, vector={VECTOR: v}) for i, v, p in columns]
            assert not collection.data.insert_many(objects).has_errors

    return Loop(write, metadata=partial(properties_of, collection=spec))


def _engine(size: int, place: str, dimension: int, *, lists: bool) -> Loop:
    import qdrant_edge

    folder = f"{place}/{size}-{lists}"
    Path(folder).mkdir(parents=True)
    params = qdrant_edge.EdgeVectorParams(size=dimension, distance=qdrant_edge.Distance.Cosine)
    config = qdrant_edge.EdgeConfig(vectors=params, wal_enabled=True)
    shard = qdrant_edge.EdgeShard.create(folder, config)

    def write(batch: VectorBatch) -> None:
        for part in _parts(batch, size):
            # A list at a time, as its documentation has it, is a tenth faster than all of them
            # first; the numpy rows' own memory, as the product gives it, faster still.
            columns = zip(part.ids, part.vectors, part.payloads, strict=True)
            rows = ((i, v.tolist() if lists else memoryview(v), p) for i, v, p in columns)
            points = [qdrant_edge.Point(i, cast("list[float]", v), p) for i, v, p in rows]
            shard.update(qdrant_edge.UpdateOperation.upsert_points(points))

    return Loop(write, finish=shard.flush)


LOOPS: dict[str, dict[str, Maker]] = {
    "qdrant": {
        "client.upsert, 256 at a time": partial(_qdrant, 256),
        "client.upload_collection, 256": partial(_qdrant_uploader, 256),
    },
    "pinecone": {
        "index.upsert, 1.9 MB at a time": partial(_pinecone, 1.9),
        "index.upsert, 1 MB at a time": partial(_pinecone, 1.0),
    },
    "weaviate": {
        "data.insert_many, 256 at a time": partial(_weaviate, 256),
        "data.insert_many, 1,000 at a time": partial(_weaviate, 1000),
    },
    "embedded": {
        "lists of floats, 256 at a time": partial(_engine, 256, lists=True),
        "views of the array, 256": partial(_engine, 256, lists=False),
        # With 16 and 32 as fast: what is made of so few records fits the processor's cache.
        "views of the array, 64": partial(_engine, 64, lists=False),
    },
}
