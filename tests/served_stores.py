"""Stores for whole swaps: each through its real client, on a fake server of its own."""

import copy
import os
import shutil
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

KINDS = ("qdrant_embedded", "qdrant", "pinecone", "weaviate")
# EMBEDMILL_TEST_STORES=all tries on every store what else is tried on some of them.
EVERYWHERE = os.environ.get("EMBEDMILL_TEST_STORES") == "all"


@dataclass
class ServedStore:
    """A store that is there.

    Attributes:
        settings: as the section ``store`` has them.
        held: dictionaries in which the server keeps what it was given.
        folder: in which the embedded engine keeps it, or None.
        pinecone: the server, where it is one.
    """

    settings: dict
    held: list = field(default_factory=list)
    folder: Path | None = None
    pinecone: object = None

    def save(self):
        """All that it holds now; no client may be open."""
        if self.folder is None:
            return copy.deepcopy(self.held)
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {path: path.read_bytes() for path in files}

    def restore(self, saved) -> None:
        """Hold again what was saved."""
        if self.folder is None:
            for now, then in zip(self.held, copy.deepcopy(saved), strict=True):
                now.clear()
                now.update(then)
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        for path, data in saved.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@contextmanager
def served_store(kind, folder):
    """A store of a kind; what its server holds is gone at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        match kind:
            case "qdrant_embedded":
                place = Path(folder) / "embedded"
                yield ServedStore({"kind": kind, "path": str(place)}, folder=place)
            case "qdrant":
                yield from _qdrant()
            case "pinecone":
                patch.setenv("FAKE_PINECONE_KEY", "any")
                yield from _pinecone()
            case "weaviate":
                _quick_clients(patch)
                yield from _weaviate()


def _qdrant():
    pytest.importorskip("qdrant_client")
    from embedmill.testing.qdrant_server import QdrantServer

    with QdrantServer() as server:
        state = server.state
        yield ServedStore(
            {"kind": "qdrant", "url": server.url}, held=[state.collections, state.aliases]
        )


def _pinecone():
    pytest.importorskip("pinecone")
    from embedmill.testing.pinecone_server import PineconeServer

    with PineconeServer() as server:
        settings = {
            "kind": "pinecone",
            "index": "docs",
            "api_key": "${FAKE_PINECONE_KEY}",
            "control_url": server.url,
            "count_settles_s": 0.0,
        }
        yield ServedStore(settings, held=[server.indexes], pinecone=server)


def _quick_clients(patch) -> None:
    """Connect without the world's certificates; ask again without waiting for seconds."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    patch.setattr("httpx._transports.default.create_ssl_context", lambda **_: context)
    patch.setattr("weaviate.retry.time", SimpleNamespace(sleep=lambda _: None), raising=False)


def _weaviate():
    pytest.importorskip("weaviate")
    from embedmill.testing.weaviate_server import WeaviateServer

    with WeaviateServer() as server:
        settings = {"kind": "weaviate", "url": server.url, "grpc_url": server.grpc_url}
        state = server.state
        yield ServedStore(settings, held=[state.classes, state.aliases])
