"""Writing records with nothing but a store's own client, in the fastest loops that we know.

Each loop takes the records as a person would have them: an array of vectors, ids, and metadata as
dictionaries. What the client wants them turned into is part of the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from embedmill.vector_store import VectorBatch

Loop = Callable[[], None]
Maker = Callable[[str, Sequence[VectorBatch]], Loop]


def _parts(batches: Sequence[VectorBatch], size: int) -> Iterator[VectorBatch]:
    for batch in batches:
        for start in range(0, len(batch.ids), size):
            rows = slice(start, start + size)
            yield VectorBatch(batch.ids[rows], batch.vectors[rows], batch.payloads[rows])


def _qdrant(size: int, *, grpc: bool, url: str, batches: Sequence[VectorBatch]) -> Loop:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(url=url, check_compatibility=False, timeout=60, prefer_grpc=grpc)
    client.create_collection(
        f"bare-{size}-{grpc}",
        vectors_config=models.VectorParams(
            size=batches[0].vectors.shape[1], distance=models.Distance.COSINE
        ),
    )

    def write() -> None:
        for part in _parts(batches, size):
            points = models.Batch(
                ids=list(map(str, part.ids)),
                vectors=part.vectors.tolist(),
                payloads=list(part.payloads),
            )
            client.upsert(f"bare-{size}-{grpc}", points, wait=True)

    return write


def _qdrant_uploader(size: int, url: str, batches: Sequence[VectorBatch]) -> Loop:
    from qdrant_client import QdrantClient

    client = QdrantClient(url=url, check_compatibility=False, timeout=60)

    def write() -> None:
        for batch in batches:
            client.upload_collection(
                "bare-uploader",
                vectors=batch.vectors,
                payload=batch.payloads,
                ids=list(map(str, batch.ids)),
                batch_size=size,
                wait=True,
            )

    return write


def _pinecone(megabytes: float, url: str, batches: Sequence[VectorBatch]) -> Loop:
    from pinecone import Pinecone

    from embedmill.vector_stores.pinecone_metadata import metadata_of

    dimension = batches[0].vectors.shape[1]
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
    ready = [[metadata_of(payload) for payload in batch.payloads] for batch in batches]
    batches = [VectorBatch(b.ids, b.vectors, m) for b, m in zip(batches, ready, strict=True)]

    def write() -> None:
        for part in _parts(batches, size):
            columns = zip(part.ids, part.vectors.tolist(), part.payloads, strict=True)
            records = [{"id": str(i), "values": v, "metadata": m} for i, v, m in columns]
            index.upsert(vectors=records, namespace="bare")

    return write


def _weaviate(size: int, urls: str, batches: Sequence[VectorBatch]) -> Loop:
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
    spec = Collection(name, CollectionSpec(batches[0].vectors.shape[1], "cosine", normalised=True))
    ready = [[properties_of(payload, spec) for payload in batch.payloads] for batch in batches]
    batches = [VectorBatch(b.ids, b.vectors, p) for b, p in zip(batches, ready, strict=True)]

    def write() -> None:
        for part in _parts(batches, size):
            columns = zip(part.ids, part.vectors, part.payloads, strict=True)
            objects = [DataObject(p, uuid=i, vector={VECTOR: v}) for i, v, p in columns]
            assert not collection.data.insert_many(objects).has_errors

    return write


def _engine(size: int, place: str, batches: Sequence[VectorBatch], *, lists: bool) -> Loop:
    import qdrant_edge

    folder = f"{place}-{size}-{lists}"
    Path(folder).mkdir(parents=True)
    params = qdrant_edge.EdgeVectorParams(
        size=batches[0].vectors.shape[1], distance=qdrant_edge.Distance.Cosine
    )
    config = qdrant_edge.EdgeConfig(vectors=params, wal_enabled=True)
    shard = qdrant_edge.EdgeShard.create(folder, config)

    def write() -> None:
        for part in _parts(batches, size):
            # A list at a time, as its documentation has it, is a tenth faster than all of them
            # first; the numpy rows' own memory, as the product gives it, faster still.
            columns = zip(part.ids, part.vectors, part.payloads, strict=True)
            rows = ((i, v.tolist() if lists else memoryview(v), p) for i, v, p in columns)
            points = [qdrant_edge.Point(i, cast("list[float]", v), p) for i, v, p in rows]
            shard.update(qdrant_edge.UpdateOperation.upsert_points(points))
        shard.flush()

    return write


LOOPS: dict[str, dict[str, Maker]] = {
    "qdrant": {
        "client.upsert, 256 at a time": lambda u, b: _qdrant(256, grpc=False, url=u, batches=b),
        "client.upload_collection, 256": lambda u, b: _qdrant_uploader(256, u, b),
    },
    "pinecone": {
        "index.upsert, 1.9 MB at a time": lambda u, b: _pinecone(1.9, u, b),
        "index.upsert, 1 MB at a time": lambda u, b: _pinecone(1.0, u, b),
    },
    "weaviate": {
        "data.insert_many, 256 at a time": partial(_weaviate, 256),
        "data.insert_many, 1,000 at a time": partial(_weaviate, 1000),
    },
    "embedded": {
        "lists of floats, 512 at a time": partial(_engine, 512, lists=True),
        "lists of floats, 256 at a time": partial(_engine, 256, lists=True),
        "views of the array, 256": partial(_engine, 256, lists=False),
    },
}
