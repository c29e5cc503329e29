"""A small index in memory that tests of whole runs are made on."""

import copy
import itertools
import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from embedmill.applied_layer import AppliedLayer
from embedmill.assembly import Seams, seams, store_of
from embedmill.dead_letter import read_letters
from embedmill.document import record_id
from embedmill.executor import InlineExecutor
from embedmill.ledger import Ledger, doc_ids_of
from embedmill.manifest import Manifest
from embedmill.open_letters import open_letters
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.settings import Settings
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.vector_layer import DEAD, VectorLayer
from embedmill.vector_stores import memory
from pipelines.compact import compact
from pipelines.ingest import ingest
from pipelines.publish import publish, rollback
from pipelines.reembed import reembed
from pipelines.replay import replay
from pipelines.run_options import RunOptions

hypothesis_settings.register_profile(
    "unit",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
hypothesis_settings.load_profile("unit")

_numbers = itertools.count()


class FakeClock:
    """Time passes only by sleeping, and by ``per_look`` with every look at the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.per_look = 0.0

    def __call__(self) -> float:
        self.now += self.per_look
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SmallIndex:
    """An index over rows, its workspace and store in memory; hashed words for vectors."""

    def __init__(self, folder: Path, **more) -> None:
        self.folder = folder
        self.workspace = MemoryWorkspace()
        self.clock = FakeClock()
        self.wrappers: dict = {}
        self._name = f"small-{next(_numbers)}"
        self._more = more
        self.write({})

    def write(self, texts, files: int = 1) -> None:
        """Make the source hold these documents: texts by id, or whole rows."""
        rows = texts
        if isinstance(texts, dict):
            rows = [{"id": name, "text": text} for name, text in texts.items()]
        lines = [json.dumps(row) + "\n" for row in rows]
        size = -(-len(lines) // files)
        for number in range(files):
            path = self.folder / f"rows{number}.jsonl"
            path.write_text("".join(lines[number * size : (number + 1) * size]))

    @property
    def settings(self) -> Settings:
        values = {
            "index": "small",
            "workspace": "unused",
            "source": {"kind": "table", "path": str(self.folder)},
            "chunker": {"kind": "text", "max_tokens": 4},
            "embedder": {"kind": "hashing", "dimension": 8},
            "store": {"kind": "memory", "name": self._name},
            "shard_count": 3,
            "max_delete_fraction": 1.0,
            **self._more,
        }
        return Settings.model_validate_json(json.dumps(values))

    @contextmanager
    def seams(self) -> Iterator[None]:
        wrappers = {"workspace": lambda _: self.workspace, **self.wrappers}
        with seams(Seams(**wrappers)):
            yield

    def ingest(self, texts=None, executor=None, **options):
        """One run over these documents, or over those that are there."""
        if texts is not None:
            self.write(texts)
        executor = executor or InlineExecutor()
        options = {"clock": self.clock, "sleep": self.clock.sleep, **options}
        with self.seams():
            try:
                return ingest(self.settings, executor, RunOptions(**options))
            finally:
                executor.close()

    def swap(self, **more) -> None:
        """Change settings from now on."""
        self._more = {**self._more, **more}

    def reembed(self, executor=None, **options):
        """Build the version that the settings ask for; its report, or None."""
        rebuilt = self._run(reembed, executor, **options)
        return rebuilt and rebuilt.report

    def publish(
        self, number=None, executor=None, *, force=False, tells=True, gates=None, **options
    ):
        """Publish; without gates unless they are given."""
        checked = gates or (lambda *_: ())
        pipeline = partial(publish, number=number, force=force, tells=tells, gates=checked)
        return self._run(pipeline, executor, **options)

    def compact(self, executor=None):
        """Fold all segments that can be folded."""
        return self._run(compact, executor)

    def rollback(self, number=None):
        with self.seams():
            return rollback(self.settings, number=number)

    def _run(self, pipeline, executor=None, **options):
        executor = executor or InlineExecutor()
        choices = RunOptions(clock=self.clock, sleep=self.clock.sleep, **options)
        with self.seams():
            try:
                return pipeline(self.settings, executor, choices)
            finally:
                executor.close()

    def save(self):
        """Remember the workspace and the store."""
        return dict(self.workspace.files), copy.deepcopy(memory._CONTENTS[self._name])

    def restore(self, saved) -> None:
        """Go back to what was remembered."""
        files, contents = saved
        self.workspace.files.clear()
        self.workspace.files.update(files)
        memory._CONTENTS[self._name] = copy.deepcopy(contents)

    @property
    def manifest(self):
        return Manifest(self.workspace, "small").read()

    def replay(self, letters=None, executor=None):
        executor = executor or InlineExecutor()
        options = RunOptions(clock=self.clock, sleep=self.clock.sleep)
        with self.seams():
            try:
                chosen = self.open_letters() if letters is None else letters
                return replay(self.settings, executor, chosen, options)
            finally:
                executor.close()

    @property
    def version(self):
        return Manifest(self.workspace, "small").read().newest

    @property
    def chunks(self) -> ChunkLayer:
        return ChunkLayer(self.workspace, "small", self.version.chunking.id)

    @property
    def vectors(self) -> VectorLayer:
        return VectorLayer.of_version(self.workspace, "small", self.version)

    @property
    def applied(self) -> AppliedLayer:
        return AppliedLayer(self.workspace, "small", self.version.collection)

    def ids(self) -> set:
        """Record ids in the store."""
        store = store_of(self.settings)
        return set(store.ids(self.version.collection))

    def payloads(self) -> list:
        store = store_of(self.settings)
        return store.fetch(self.version.collection, sorted(self.ids())).payloads

    def documents(self) -> dict[str, int]:
        """Chunk count of every document that the ledgers hold."""
        found = {}
        for shard in range(self.settings.shard_count):
            ledger, _ = Ledger.fold(self.chunks, shard)
            entries = sorted(ledger.entries(), key=lambda pair: pair[1].segment)
            for doc_id, _, entry in doc_ids_of(self.chunks, shard, entries):
                found[doc_id] = entry.chunk_count
        return found

    def live_chunks(self) -> dict:
        """Text, and whether it has a record, of the chunks of all live documents."""
        found = {}
        for shard in range(self.settings.shard_count):
            ledger, _ = Ledger.fold(self.chunks, shard)
            entries = sorted(ledger.entries(), key=lambda pair: pair[1].segment)
            for doc_id, _, entry in doc_ids_of(self.chunks, shard, entries):
                key = SegmentKey(shard, entry.segment)
                ids = self.chunks.docs(key).column("doc_id").to_pylist()
                first = self.chunks.docs(key).column("first_chunk")[ids.index(doc_id)].as_py()
                chunks, digest = self.chunks.chunks(key)
                lost = {row for row, _, _ in self.applied.read(key).rejected}
                lost |= set(np.flatnonzero(self.vectors.read(key, digest).origin == DEAD))
                texts = chunks.column("text").to_pylist()
                for at in range(entry.chunk_count):
                    found[doc_id, at] = (texts[first + at], first + at not in lost)
        return found

    def expected_ids(self) -> set:
        """Ids of all chunks of all live documents that should have a record."""
        return {record_id(*place) for place, (_, good) in self.live_chunks().items() if good}

    def letters(self) -> list:
        return list(read_letters(self.workspace, "small"))

    def open_letters(self) -> list:
        return open_letters(self.workspace, "small", self.version)

    def count_of(self, part: str) -> int:
        """Files of the workspace with this in their path."""
        return sum(part in path for path in self.workspace.files)


@pytest.fixture
def small_index():
    """Makes small indexes; each has a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:

        def make(**more) -> SmallIndex:
            own = Path(folder) / str(next(_numbers))
            own.mkdir()
            return SmallIndex(own, **more)

        yield make


@pytest.fixture
def plain_http(monkeypatch):
    """Clients of servers on this machine: no proxy, and one TLS context that none of them uses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("httpx._transports.default.create_ssl_context", lambda **_: context)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def many_parts(monkeypatch):
    """Small splits, blocks and segments, so that a small corpus has many of each."""
    monkeypatch.setattr("embedmill.sources.listing.SPLIT_FILES", 1)
    monkeypatch.setattr("embedmill.sources.blocks.BLOCK_ROWS", 4)
    monkeypatch.setattr("embedmill.drafting._FIRST_SEGMENT", 2)


@pytest.fixture
def new_clock() -> type[FakeClock]:
    return FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
