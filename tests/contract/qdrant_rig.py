"""A store on the fake Qdrant server, and records for it."""

from embedmill.document import record_id
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.testing.counting_store_contract import UNIT, unit_vectors
from embedmill.testing.qdrant_server import Fault, QdrantServer, ServerOptions
from embedmill.vector_store import VectorBatch
from embedmill.vector_stores.qdrant import QdrantStore


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


class Rig:
    """A server with planned faults, and stores on it."""

    def __init__(self, *faults, **options):
        self.server = QdrantServer(faults, options=ServerOptions(**options))
        self.stores = []

    def settings(self, **more):
        values = {"kind": "qdrant", "url": self.server.url, **more}
        return QdrantServerSettings.model_validate(values)

    def store(self, *, sleep=None, clock=None, pace=None, **more):
        given = {"sleep": sleep, "clock": clock, "pace": pace}
        seams = {name: seam for name, seam in given.items() if seam}
        self.stores.append(QdrantStore(self.settings(**more), **seams))
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
        self.server.plan.add(Fault(at=at, do=do, **more))

    def calls(self, route):
        return self.server.plan.calls[route]

    def ids(self, name="notes"):
        return self.server.ids(name)

    def close(self):
        for store in self.stores:
            store.close()
        self.server.__exit__(None, None, None)


def as_text(ids):
    return set(map(str, ids))
