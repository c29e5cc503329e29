"""A store on the fake Weaviate, and records for it."""

import ssl
from types import SimpleNamespace

from embedmill.document import record_id
from embedmill.testing.counting_store_contract import UNIT, unit_vectors
from embedmill.testing.weaviate_server import ServerOptions, WeaviateServer
from embedmill.vector_store import VectorBatch
from embedmill.vector_stores.weaviate import WeaviateStore
from embedmill.vector_stores.weaviate_names import class_name
from embedmill.weaviate_settings import WeaviateSettings


def record_ids(count, start=0):
    return [record_id(f"doc-{row}", 0) for row in range(start, start + count)]


def records(count, *, seed=0, start=0, **payload):
    ids = record_ids(count, start)
    payloads = [
        {
            "doc_id": f"doc-{row}",
            "chunk_index": 0,
            "text": f"text {row}",
            "metadata": {"lang": ["en", "de"][row % 2], "year": 2000 + row % 5},
            **payload,
        }
        for row in range(start, start + count)
    ]
    return VectorBatch(ids, unit_vectors(count, seed), payloads)


# Loading the world's certificates takes longer than most tests; nothing here is encrypted.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def quick_clients(monkeypatch):
    """Make the client connect without certificates, and ask again without waiting for seconds."""
    monkeypatch.setattr(
        "httpx._transports.default.create_ssl_context", lambda **_: _NO_CERTIFICATES
    )
    monkeypatch.setattr("weaviate.retry.time", SimpleNamespace(sleep=lambda _: None))


class Rig:
    """A server with planned faults, and stores on it."""

    def __init__(self, *faults, **options):
        self.server = WeaviateServer(faults, options=ServerOptions(**options))
        self.stores = []

    @property
    def state(self):
        return self.server.state

    def settings(self, **more):
        addresses = {"url": self.server.url, "grpc_url": self.server.grpc_url}
        return WeaviateSettings.model_validate({"kind": "weaviate", **addresses, **more})

    def store(self, *, sleep=None, clock=None, pace=None, **more):
        given = {"sleep": sleep, "clock": clock, "pace": pace}
        seams = {name: seam for name, seam in given.items() if seam}
        self.stores.append(WeaviateStore(self.settings(**more), **seams))
        return self.stores[-1]

    def filled(self, count, name="notes", **more):
        """A store whose collection has records; what it asked for so far is forgotten."""
        store = self.store(**more)
        store.create_collection(name, UNIT)
        if count:
            store.upsert(name, records(count))
        self.server.plan.calls.clear()
        return store

    def plan(self, at, do, **more):
        self.server.plan.next_call(at=at, do=do, **more)

    def calls(self, route):
        return self.server.plan.calls[route]

    def ids(self, name="notes"):
        return self.server.ids(class_name(name))

    def definition(self, name="notes"):
        return self.state.classes[class_name(name)].definition

    def objects(self, name="notes", tenant=""):
        return self.state.classes[class_name(name)].objects[tenant]

    def close(self):
        for store in self.stores:
            store.close()
        self.server.__exit__(None, None, None)


def as_text(ids):
    return set(map(str, ids))
