"""The stores that writing is measured on, and the records that are written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.ingesting import settings_in
from embedmill.assembly import Layers, workspace_of
from embedmill.embedder import EmbeddedTexts, Embedder, Role
from embedmill.manifest import Manifest
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.segment_records import SegmentRecords
from embedmill.settings import Settings
from embedmill.vector_store import VectorBatch

KEY = "FAKE_STORE_KEY"
# What of the product is measured.
PRODUCT, STORE = "StoreWriter", "store.upsert"


@dataclass(frozen=True, slots=True)
class BenchStore:
    """A store that is measured.

    Attributes:
        fake: module of its server; empty for an engine in the process.
        section: of the settings, by the address of the server or the path of a folder.
    """

    fake: str
    section: Callable[[str], dict[str, object]]


STORES = {
    "qdrant": BenchStore(
        "embedmill.testing.qdrant_server", lambda url: {"kind": "qdrant", "url": url}
    ),
    "pinecone": BenchStore(
        "embedmill.testing.pinecone_server",
        lambda url: {
            "kind": "pinecone",
            "index": "bench",
            "control_url": url,
            "api_key": f"${{{KEY}}}",
        },
    ),
    "weaviate": BenchStore(
        "embedmill.testing.weaviate_server",
        # Its address is two: REST and gRPC.
        lambda urls: {"kind": "weaviate", "url": urls.split()[0], "grpc_url": urls.split()[1]},
    ),
    "embedded": BenchStore("", lambda path: {"kind": "qdrant_embedded", "path": path}),
}


class DenseEmbedder:
    """Vectors in random directions: those of hashed words are mostly zeros, cheap as text."""

    def __init__(self, real: Embedder) -> None:
        self.recipe = real.recipe
        self._draw = np.random.default_rng(0)

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:  # noqa: ARG002 (as all do)
        """A vector for every text."""
        vectors = self._draw.normal(size=(len(texts), self.recipe.dimension))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return EmbeddedTexts(vectors.astype(np.float32), {}, len(texts))


def corpus_settings(folder: Path, dimension: int, segment_chunks: int) -> Settings:
    """Settings whose index gives the records: layers in ``folder``, nothing in a store."""
    return settings_in(
        folder,
        {"path": str(folder / "rows.jsonl"), "metadata_columns": ["lang", "year"]},
        chunker={"kind": "document"},
        embedder={"kind": "hashing", "dimension": dimension},
        store={"kind": "discard", "path": str(folder / "discarded")},
        shard_count=4,
        run={"segment_chunks": segment_chunks},
    )


@contextmanager
def served(store: str, folder: Path) -> Iterator[str]:
    """The store's fake server while it is needed; its address, or a folder for an engine."""
    os.environ["NO_PROXY"] = "127.0.0.1"
    os.environ[KEY] = "any"
    if not STORES[store].fake:
        yield str(folder / f"store-{os.getpid()}")
        return
    command = [sys.executable, "-m", STORES[store].fake, "--discard"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 (ours)
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def context_of(settings: Settings, store: dict[str, object], name: str) -> RunContext:
    """What a writer needs to know to fill the collection ``name`` from the index' layers."""
    layers_of = Manifest(workspace_of(settings), settings.index).read().versions[0]
    values = settings.model_dump(mode="json") | {"store": store}
    return RunContext(
        settings=Settings.model_validate(values, strict=False),
        run="bench",
        version="v1",
        collection=name,
        chunking=layers_of.chunking,
        embedding=layers_of.embedding,
    )


def segments_of(context: RunContext) -> list[SegmentKey]:
    """All segments, those of a shard in order."""
    committed = Layers(context).chunks.committed()
    return [SegmentKey(shard, number) for shard in committed for number in committed[shard]]


def records_of(context: RunContext) -> Iterator[VectorBatch]:
    """The records of all segments, as the product makes them."""
    layers = Layers(context)
    for key in segments_of(context):
        chunks, digest = layers.chunks.chunks(key)
        segment = SegmentRecords(layers.chunks.docs(key), chunks, layers.vectors.read(key, digest))
        yield segment.batch(segment.with_vectors())
