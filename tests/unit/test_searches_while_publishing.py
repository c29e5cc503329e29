"""A stream of searches while readers are sent to and fro: none is empty, none is mixed."""

import json
import os
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from served_stores import EVERYWHERE, KINDS, served_store

from embedmill.errors import EmbedmillError
from embedmill.index_reader import IndexReader
from embedmill.settings import Settings
from embedmill.vector_stores.build import open_store

READERS = 4
# EMBEDMILL_TEST_SEARCHES=1000 asks for more than a few of what goes over a network.
SEARCHES = int(os.environ.get("EMBEDMILL_TEST_SEARCHES", "0"))
TEXTS = {f"doc-{n}": f"one two three four five six seven {n}" for n in range(8)}


class Shared:
    """A client of an engine that has one owner: publisher and readers are threads of it."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    def close(self):
        """The owner does it."""


@pytest.fixture
def index_on(small_index, tmp_path):
    """Makes an index on a store of a kind; version 1 is published."""
    with ExitStack() as stack:

        def make(kind):
            made = small_index(chunker={"kind": "text", "max_tokens": 8})
            settings = made.settings
            if kind != "memory":
                served = stack.enter_context(served_store(kind, tmp_path))
                values = {**settings.model_dump(mode="json"), "store": served.settings}
                settings = Settings.model_validate_json(json.dumps(values))
            made.client = lambda: open_store(settings.store)
            if kind == "qdrant_embedded":
                engine = made.client()
                stack.callback(engine.close)
                made.client = lambda: Shared(engine)
            client = made.client
            made.wrappers["store"] = lambda _: client()
            made.ingest(TEXTS)
            return made

        yield make


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


class FollowingReader(Reader):
    """Searches through the public reader, which embeds with the model of the version it sees."""

    def __init__(self, index, count, switched, reader):
        super().__init__(index, count, switched)
        self._reader = reader

    def run(self):
        try:
            while len(self.results) < self._count or not self._switched.is_set():
                hits = self._reader.search("three four five", 5)
                self.results.append({len(hit.payload["text"].split()) > 2 for hit in hits})
        except EmbedmillError as error:
            self.error = error
        finally:
            self._client.close()


def searches_on(kind):
    return SEARCHES or (1000 if kind in ("memory", "qdrant_embedded") else 100)


def to_and_fro(index, readers, switched):
    """Publish and go back until all readers have searched enough, at least six times."""
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
    # Empty would be the empty set, mixed would be both.
    assert {frozenset(result) for result in results} == {frozenset([True]), frozenset([False])}


@pytest.mark.parametrize("kind", ["memory", *KINDS])
def test_no_search_is_empty_and_none_is_mixed(index_on, kind):
    index = index_on(kind)
    # Version 2 has shorter chunks: a hit tells by its text which version it is of.
    index.swap(chunker={"kind": "text", "max_tokens": 2})
    index.reembed()
    switched = threading.Event()
    each = searches_on(kind) // READERS
    to_and_fro(index, [Reader(index, each, switched) for _ in range(READERS)], switched)


@pytest.mark.parametrize("kind", ["memory", *(["pinecone"] if EVERYWHERE else [])])
def test_nor_when_the_new_version_has_another_dimension(index_on, kind):
    """At Pinecone it is in another index: the alias moves from one to the other."""
    index = index_on(kind)
    index.swap(chunker={"kind": "text", "max_tokens": 2})
    index.swap(embedder={"kind": "hashing", "dimension": 12})
    index.reembed()
    switched = threading.Event()
    with index.seams(), IndexReader(index.settings, refresh_s=0) as shared:
        each = searches_on(kind) // READERS
        readers = [FollowingReader(index, each, switched, shared) for _ in range(READERS)]
        to_and_fro(index, readers, switched)
