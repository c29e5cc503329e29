"""The contract suite over the stores that need no server."""

from pathlib import Path

import pytest

from embedmill.settings import DiscardStoreSettings, MemoryStoreSettings, QdrantEmbeddedSettings
from embedmill.testing.vector_store_contract import CountingContract, OpenStore, VectorStoreContract
from embedmill.vector_stores.build import open_store as open_from_settings


class TestMemoryStore(VectorStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        name = tmp_path.name.replace("[", "-").replace("]", "")[-60:].lstrip("_-.")
        settings = MemoryStoreSettings(kind="memory", name=name)
        return lambda: open_from_settings(settings)


class TestQdrantEmbeddedStore(VectorStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        settings = QdrantEmbeddedSettings(kind="qdrant_embedded", path=str(tmp_path / "store"))
        return lambda: open_from_settings(settings)


class TestDiscardStore(CountingContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        settings = DiscardStoreSettings(kind="discard", path=str(tmp_path / "store"))
        return lambda: open_from_settings(settings)
