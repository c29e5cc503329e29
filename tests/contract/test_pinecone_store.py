"""The contract suite over Pinecone: against the fake, and with a key against the service."""

import os
from functools import partial

import pytest

pytest.importorskip("pinecone")

from embedmill.pinecone_settings import PineconeSettings
from embedmill.recipe import Metric
from embedmill.testing.counting_store_contract import DIMENSION, a_batch
from embedmill.testing.pinecone_server import PineconeServer, ServerOptions
from embedmill.testing.vector_store_contract import OpenStore, VectorStoreContract
from embedmill.vector_store import CollectionSpec, VectorStore
from embedmill.vector_stores.pinecone import PineconeStore
from embedmill.vector_stores.pinecone_client import PineconeClient


class PineconeContract(VectorStoreContract):
    """What an index of one dimension and metric, and 40 KB of metadata, change in the contract."""

    @pytest.fixture
    def open_other_index(self):
        """Override: opens a store on another index, by name."""
        raise NotImplementedError

    def test_dropping_removes_the_collection_and_forgives_an_absent_one(
        self, store: VectorStore
    ) -> None:
        store.upsert("notes", a_batch(2))
        store.drop_collection("notes")
        store.drop_collection("notes")
        assert list(store.collections()) == []
        store.create_collection("notes", CollectionSpec(DIMENSION, "cosine", normalised=False))
        assert store.count("notes") == 0

    @pytest.mark.parametrize("metric", ["cosine", "dot", "euclid"])
    @pytest.mark.parametrize("normalised", [True, False])
    def test_search_equals_brute_force(
        self, open_other_index, metric: Metric, *, normalised: bool
    ) -> None:
        store = open_other_index(f"other-{metric}")
        super().test_search_equals_brute_force(store, metric, normalised=normalised)
        store.close()

    def test_payloads_of_all_kinds_come_back_equal(self, store: VectorStore) -> None:
        payloads = [
            {},
            {"doc_id": "Ωμέγα/日本語 \U0001f600\u202e.md", "nul": "a\0b", "": "empty key"},
            {"nested": {"list": [1, 2.5, None, True, "x", {"y": []}]}, "none": None},
            {"big": 2**63 - 1, "small": -(2**63), "tiny": 5e-324, "huge": 1.7e308, "zero": -0.0},
            {'dots.in[key] "quoted" back\\slash': 1},
            {"text": "long " * 7_000},
        ]
        batch = a_batch(len(payloads), payloads=payloads)
        assert list(store.upsert("notes", batch)) == []
        assert list(store.fetch("notes", batch.ids).payloads) == payloads


class FakeContract(PineconeContract):
    options = ServerOptions()
    settles_s = 0.0

    @pytest.fixture
    def server(self, monkeypatch):
        monkeypatch.setenv("FAKE_PINECONE_KEY", "any")
        with PineconeServer(options=self.options) as server:
            yield server

    @pytest.fixture
    def open_other_index(self, server):
        def open_it(index: str) -> PineconeStore:
            settings = PineconeSettings(
                kind="pinecone",
                index=index,
                api_key="${FAKE_PINECONE_KEY}",
                control_url=server.url,
                count_settles_s=self.settles_s,
            )
            return PineconeStore(settings)

        return open_it

    @pytest.fixture
    def open_store(self, open_other_index) -> OpenStore:
        return partial(open_other_index, "notes")


class TestPineconeWithoutLag(FakeContract):
    pass


class TestPineconeWithLag(FakeContract):
    options = ServerOptions(index_lag_s=0.05, stats_lag_s=0.05)
    settles_s = 0.15


@pytest.mark.live
@pytest.mark.skipif(
    "EMBEDMILL_TEST_PINECONE_KEY" not in os.environ, reason="needs a key of Pinecone"
)
class TestPineconeService(PineconeContract):
    """Against the service: makes and empties indexes named embedmill-test-..., and leaves them."""

    @pytest.fixture
    def open_other_index(self):
        def open_it(index: str) -> PineconeStore:
            emptied(live_store(index))
            return live_store(index)

        return open_it

    @pytest.fixture
    def open_store(self) -> OpenStore:
        emptied(live_store("notes"))
        return partial(live_store, "notes")


def live_store(index: str) -> PineconeStore:
    settings = PineconeSettings(
        kind="pinecone",
        index=f"embedmill-test-{index}",
        api_key="${EMBEDMILL_TEST_PINECONE_KEY}",
    )
    return PineconeStore(settings)


def emptied(store: PineconeStore) -> None:
    """Remove what an earlier test left, by the SDK alone."""
    client = PineconeClient(store._settings)
    facts = client.facts()
    if facts is not None:
        index, transport = client.connect(facts)
        for alias in transport.get("/namespace-aliases").json()["namespace_aliases"]:
            transport.delete(f"/namespace-aliases/{alias['name']}")
        for page in index.list_namespaces():
            for namespace in page.namespaces:
                index.delete_namespace(name=namespace.name)
        index.close()
    client.close()
    store.close()
