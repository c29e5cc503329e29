"""A fake Pinecone and stores on it."""

from contextlib import ExitStack, contextmanager

from embedmill.pinecone_settings import PineconeSettings
from embedmill.testing.counting_store_contract import UNIT
from embedmill.testing.pinecone_server import Fault, PineconeServer, ServerOptions
from embedmill.vector_stores.pinecone import PineconeStore

__all__ = ["FakeClock", "Fault", "Rig", "rigs"]
INDEX = "docs"
KEY = "a-key-in-no-known-form"


class FakeClock:
    """Time passes only by sleeping."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Rig:
    """A server and stores on it."""

    def __init__(self, options):
        self.server = PineconeServer(options=options)
        self.clock = FakeClock()
        self.stores = []

    def store(self, *, time=None, pace=None, **more):
        values = {
            "kind": "pinecone",
            "index": INDEX,
            "api_key": "${FAKE_PINECONE_KEY}",
            "control_url": self.server.url,
            "records_per_request": 5,
            "count_settles_s": 0.0,
            **more,
        }
        settings = PineconeSettings.model_validate(values)
        seams = {"clock": time, "sleep": time.sleep} if time else {}
        if pace:
            seams["pace"] = pace
        store = PineconeStore(settings, **seams)
        self.stores.append(store)
        return store

    def with_notes(self, **more):
        store = self.store(**more)
        store.create_collection("notes", UNIT)
        return store

    def plan(self, at, do, **more):
        self.server.plan.next_call(at=at, do=do, **more)

    def close(self):
        for store in self.stores:
            store.close()

    def calls(self, route):
        return self.server.plan.calls[route]

    def written(self):
        return self.server.written(INDEX, "notes")


@contextmanager
def rigs(monkeypatch):
    """Makes rigs by the options of their server, and ends them all."""
    monkeypatch.setenv("FAKE_PINECONE_KEY", KEY)
    with ExitStack() as stack:

        def make(**options):
            rig = Rig(ServerOptions(api_key=KEY, **options))
            stack.enter_context(rig.server)
            stack.callback(rig.close)
            return rig

        yield make
