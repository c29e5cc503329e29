"""What writing costs here, beside the official client by itself, into a server that only counts."""

import subprocess
import sys
import time

import pytest

pytest.importorskip("qdrant_client")

from qdrant_client import QdrantClient, models
from qdrant_rig import record_ids

from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.testing.counting_store_contract import unit_vectors
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.qdrant import QdrantStore

COUNT = 1024


@pytest.fixture
def url(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    command = [sys.executable, "-m", "embedmill.testing.qdrant_server", "--discard"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.terminate()


def least_cpu(write):
    """Processor seconds of this process alone: other load on the machine does not count."""
    costs = []
    for _ in range(3):
        start = time.process_time()
        write()
        costs.append(time.process_time() - start)
    return min(costs)


@pytest.mark.parametrize("dimension", [384, 1536])
def test_a_write_costs_no_more_than_through_the_client_alone(url, dimension):
    payload = {"doc_id": "a.md", "chunk_index": 1, "text": "lorem ipsum " * 65, "metadata": {}}
    batch = VectorBatch(record_ids(COUNT), unit_vectors(COUNT, 1, dimension), [payload] * COUNT)
    store = QdrantStore(QdrantServerSettings(kind="qdrant", url=url))
    store.create_collection("notes", CollectionSpec(dimension, "cosine", normalised=True))
    client = QdrantClient(url=url, check_compatibility=False, timeout=60)

    def by_the_client_alone():
        for start in range(0, COUNT, 256):
            rows = slice(start, start + 256)
            points = models.Batch(
                ids=list(map(str, batch.ids[rows])),
                vectors=batch.vectors[rows].tolist(),
                payloads=batch.payloads[rows],
            )
            client.upsert("notes", points, wait=True)

    ours, alone = least_cpu(lambda: store.upsert("notes", batch)), least_cpu(by_the_client_alone)
    store.close()
    client.close()
    assert alone / ours > 0.85, (
        f"{ours / COUNT * 1e6:.0f} ms per 1,000, {alone / COUNT * 1e6:.0f} alone"
    )
