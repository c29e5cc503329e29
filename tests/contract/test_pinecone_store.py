"""The contract suite over Pinecone: against the fake, and with a key against the service."""

import os

import pytest
from served_stores import EVERYWHERE

pytest.importorskip("pinecone")

from embedmill.pinecone_settings import PineconeSettings
from embedmill.testing.pinecone_server import PineconeServer, ServerOptions
from embedmill.testing.vector_store_contract import OpenStore, SharedStoreContract
from embedmill.vector_stores.pinecone import PineconeStore
from embedmill.vector_stores.pinecone_client import PineconeClient


class FakeContract(SharedStoreContract):
    options = ServerOptions()
    settles_s = 0.0

    @pytest.fixture
    def server(self, monkeypatch):
        monkeypatch.setenv("FAKE_PINECONE_KEY", "any")
        with PineconeServer(options=self.options) as server:
            yield server

    @pytest.fixture
    def open_store(self, server) -> OpenStore:
        settings = PineconeSettings(
            kind="pinecone",
            index="notes",
            api_key="${FAKE_PINECONE_KEY}",
            control_url=server.url,
            count_settles_s=self.settles_s,
        )
        return lambda: PineconeStore(settings)


class TestPineconeWithoutLag(FakeContract):
    # What holds with a lag holds without one.
    __test__ = EVERYWHERE


class TestPineconeWithLag(FakeContract):
    options = ServerOptions(index_lag_s=0.05, stats_lag_s=0.05)
    settles_s = 0.15


@pytest.mark.live
@pytest.mark.skipif(
    "EMBEDMILL_TEST_PINECONE_KEY" not in os.environ, reason="needs a key of Pinecone"
)
class TestPineconeService(SharedStoreContract):
    """Against the service: makes and empties indexes named embedmill-test..., and leaves them."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        settings = PineconeSettings(
            kind="pinecone", index="embedmill-test", api_key="${EMBEDMILL_TEST_PINECONE_KEY}"
        )
        empty(settings)
        return lambda: PineconeStore(settings)


def empty(settings: PineconeSettings) -> None:
    """Remove what an earlier test left, by the SDK alone."""
    client = PineconeClient(settings)
    for name in client.siblings():
        _, index, transport = client.connect(name)
        for alias in transport.get("/namespace-aliases").json()["namespace_aliases"]:
            transport.delete(f"/namespace-aliases/{alias['name']}")
        for page in index.list_namespaces():
            for namespace in page.namespaces:
                index.delete_namespace(name=namespace.name)
        index.close()
    client.close()
