"""A store on the fake Weaviate, and records for it."""

import ssl
from types import SimpleNamespace

from store_rig import StoreRig, as_text, record_ids, records

from embedmill.testing.counting_store_contract import UNIT
from embedmill.testing.weaviate_server import ServerOptions, WeaviateServer
from embedmill.vector_stores.weaviate import WeaviateStore
from embedmill.vector_stores.weaviate_names import class_name
from embedmill.weaviate_settings import WeaviateSettings

__all__ = ["UNIT", "Rig", "as_text", "quick_clients", "record_ids", "records"]

# Loading the world's certificates takes longer than most tests; nothing here is encrypted.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def quick_clients(monkeypatch):
    """Make the client connect without certificates, and ask again without waiting for seconds."""
    monkeypatch.setattr(
        "httpx._transports.default.create_ssl_context", lambda **_: _NO_CERTIFICATES
    )
    monkeypatch.setattr("weaviate.retry.time", SimpleNamespace(sleep=lambda _: None))


class Rig(StoreRig):
    server_type, options_type = WeaviateServer, ServerOptions
    settings_type, store_type = WeaviateSettings, WeaviateStore
    kind = "weaviate"

    @property
    def state(self):
        return self.server.state

    def address(self):
        return {"url": self.server.url, "grpc_url": self.server.grpc_url}

    def plan(self, at, do, **more):
        self.server.plan.next_call(at=at, do=do, **more)

    def ids(self, name="notes"):
        return self.server.ids(class_name(name))

    def definition(self, name="notes"):
        return self.state.classes[class_name(name)].definition

    def objects(self, name="notes", tenant=""):
        return self.state.classes[class_name(name)].objects[tenant]
