"""The contract suite through the real client, against the fake server or a real one."""

import os

import pytest

pytest.importorskip("qdrant_client")

from qdrant_grpc_front import grpc_front

from embedmill.errors import RefusedError
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.testing.qdrant_server import QdrantServer
from embedmill.testing.vector_store_contract import OpenStore, SharedStoreContract
from embedmill.vector_stores.qdrant import QdrantStore

LIVE_URL = os.environ.get("EMBEDMILL_TEST_QDRANT_URL", "")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


class TestQdrantServer(SharedStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        with QdrantServer() as server:
            settings = QdrantServerSettings(kind="qdrant", url=server.url)
            yield lambda: QdrantStore(settings)


class TestQdrantServerOverGrpc(SharedStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        with QdrantServer() as server, grpc_front(server) as (_, port):
            settings = QdrantServerSettings(
                kind="qdrant", url=server.url, prefer_grpc=True, grpc_port=port
            )
            yield lambda: QdrantStore(settings)


@pytest.mark.live
@pytest.mark.skipif(not LIVE_URL, reason="EMBEDMILL_TEST_QDRANT_URL names no server")
class TestLiveQdrantServer(SharedStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        key = "${EMBEDMILL_TEST_QDRANT_KEY}" if "EMBEDMILL_TEST_QDRANT_KEY" in os.environ else None
        settings = QdrantServerSettings(kind="qdrant", url=LIVE_URL, api_key=key)
        clean(settings)
        yield lambda: QdrantStore(settings)
        clean(settings)


def clean(settings):
    """The suite's own names; a collection of somebody else's under one of them is left alone."""
    store = QdrantStore(settings)
    for name in ("notes", "other", "newer", "archive"):
        try:
            store.fetch(name, [])
        except RefusedError:
            continue
        store._client.delete_collection(name)
    store.close()
