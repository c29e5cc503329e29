"""The contract suite through the real client, against the fake server or a real one."""

import os

import pytest

pytest.importorskip("weaviate")

from weaviate_rig import quick_clients

from embedmill.errors import RefusedError
from embedmill.testing.vector_store_contract import CountingContract, OpenStore, SharedStoreContract
from embedmill.testing.weaviate_server import WeaviateServer
from embedmill.vector_stores.weaviate import WeaviateStore
from embedmill.vector_stores.weaviate_names import class_name
from embedmill.weaviate_settings import WeaviateSettings

LIVE_URL = os.environ.get("EMBEDMILL_TEST_WEAVIATE_URL", "")


@pytest.fixture(scope="module")
def served():
    """One server for all tests; emptied before each."""
    with WeaviateServer() as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    quick_clients(monkeypatch)


def on(server, **more):
    addresses = {"url": server.url, "grpc_url": server.grpc_url}
    return WeaviateSettings.model_validate({"kind": "weaviate", **addresses, **more})


def emptied(server):
    server.state.classes.clear()
    server.state.aliases.clear()
    return server


class TestWeaviate(SharedStoreContract):
    @pytest.fixture
    def open_store(self, served) -> OpenStore:
        settings = on(emptied(served))
        return lambda: WeaviateStore(settings)


class TestWeaviateWithTenants(CountingContract):
    @pytest.fixture
    def open_store(self, served) -> OpenStore:
        settings = on(emptied(served), tenant_key="customer")
        return lambda: WeaviateStore(settings)


@pytest.mark.live
@pytest.mark.skipif(not LIVE_URL, reason="EMBEDMILL_TEST_WEAVIATE_URL names no server")
class TestLiveWeaviate(SharedStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        named = {
            "grpc_url": os.environ.get("EMBEDMILL_TEST_WEAVIATE_GRPC_URL"),
            "api_key": "${EMBEDMILL_TEST_WEAVIATE_KEY}"
            if "EMBEDMILL_TEST_WEAVIATE_KEY" in os.environ
            else None,
        }
        settings = WeaviateSettings.model_validate({"kind": "weaviate", "url": LIVE_URL, **named})
        clean(settings)
        yield lambda: WeaviateStore(settings)
        clean(settings)


def clean(settings):
    """The suite's own names; a collection of somebody else's under one of them is left alone."""
    store = WeaviateStore(settings)
    for alias, target in store._aliases().items():
        if target in {class_name(name) for name in ("notes", "newer")}:
            store._connection._open().alias.delete(alias_name=alias)
    for name in ("notes", "other", "newer", "archive"):
        try:
            store.drop_collection(name)
        except RefusedError:
            continue
    store.close()
