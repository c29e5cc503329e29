"""A store on the fake Qdrant server."""

from store_rig import StoreRig, as_text, record_ids, records

from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.testing.counting_store_contract import UNIT
from embedmill.testing.qdrant_server import Fault, QdrantServer, ServerOptions
from embedmill.vector_stores.qdrant import QdrantStore

__all__ = ["UNIT", "Fault", "Rig", "as_text", "record_ids", "records"]


class Rig(StoreRig):
    server_type, options_type = QdrantServer, ServerOptions
    settings_type, store_type = QdrantServerSettings, QdrantStore
    kind = "qdrant"

    def address(self):
        return {"url": self.server.url}

    def plan(self, at, do, **more):
        self.server.plan.add(Fault(at=at, do=do, **more))

    def ids(self, name="notes"):
        return self.server.ids(name)
