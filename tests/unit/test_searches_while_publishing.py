"""A stream of searches while readers are sent to and fro: none is empty, none is mixed."""

import threading
from contextlib import ExitStack

import numpy as np
import pytest

from embedmill.assembly import store_of
from embedmill.qdrant_settings import QdrantServerSettings

SEARCHES, READERS = 1000, 4
TEXTS = {f"doc-{n}": f"one two three four five six seven {n}" for n in range(8)}


@pytest.fixture(params=["memory", "qdrant"])
def index(request, small_index, monkeypatch):
    """Version 2 has shorter chunks: a hit tells by its text which version it is of."""
    made = small_index(chunker={"kind": "text", "max_tokens": 8})
    with ExitStack() as stack:
        made.client = lambda: store_of(made.settings)
        if request.param == "qdrant":
            pytest.importorskip("qdrant_client")
            from embedmill.testing.qdrant_server import QdrantServer
            from embedmill.vector_stores.qdrant import QdrantStore

            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            server = stack.enter_context(QdrantServer())
            settings = QdrantServerSettings.model_validate({"kind": "qdrant", "url": server.url})
            made.client = lambda: QdrantStore(settings)
            made.wrappers["store"] = lambda _: QdrantStore(settings)
        made.ingest(TEXTS)
        made.swap(chunker={"kind": "text", "max_tokens": 2})
        made.reembed()
        yield made


class Reader(threading.Thread):
    """Searches the alias, as a service does that knows nothing of versions."""

    def __init__(self, index, count, switched):
        super().__init__()
        self._switched = switched
        self._client = index.client()
        self._count = count
        self.results = []
        self.error = None

    def run(self):
        vector = np.full(8, 8**-0.5, np.float32)
        try:
            while len(self.results) < self._count or not self._switched.is_set():
                hits = self._client.search("small", vector, 5)
                self.results.append({len(hit.payload["text"].split()) > 2 for hit in hits})
        except Exception as error:  # noqa: BLE001 - the test says what it was
            self.error = error
        finally:
            self._client.close()


def test_no_search_is_empty_and_none_is_mixed(index):
    switched = threading.Event()
    readers = [Reader(index, SEARCHES // READERS, switched) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for number in range(200):
        index.publish() if number % 2 == 0 else index.rollback()
        if number == 5:
            switched.set()
        if not any(reader.is_alive() for reader in readers):
            break
    for reader in readers:
        reader.join(60)
    assert [reader.error for reader in readers] == [None] * READERS
    results = [result for reader in readers for result in reader.results]
    assert len(results) >= SEARCHES
    # Empty would be the empty set, mixed would be both.
    assert {frozenset(result) for result in results} == {frozenset([True]), frozenset([False])}
