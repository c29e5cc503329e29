"""An index in memory that can die at any of its effects, and what must hold after that."""

import copy
import itertools
import json
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embedmill.assembly import seams, store_of
from embedmill.embedder import EmbeddedTexts
from embedmill.errors import PermanentError
from embedmill.executor import InlineExecutor
from embedmill.ledger import Ledger
from embedmill.manifest import Manifest
from embedmill.open_letters import open_letters
from embedmill.run_report import read_reports
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.settings import Settings
from embedmill.testing.crash_points import Crash, Process
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.vector_layer import DEAD, EMBEDDED, VectorLayer
from embedmill.vector_store import Rejection
from embedmill.vector_stores import memory
from pipelines.audit import audit
from pipelines.compact import compact
from pipelines.ingest import ingest
from pipelines.replay import replay
from pipelines.run_options import RunOptions

# Words whose chunk the embedder or the store refuses while the faults last.
REFUSED, REJECTED = "unembeddable", "unstorable"
_numbers = itertools.count()


class RefusingEmbedder:
    """Fails the texts with a word."""

    def __init__(self, real, word) -> None:
        self.recipe = real.recipe
        self._real = real
        self._word = word

    def embed(self, texts, role):
        embedded = self._real.embed(texts, role)
        refused = [row for row, text in enumerate(texts) if self._word in text]
        vectors = embedded.vectors.copy()
        vectors[refused] = np.nan
        failures = {row: PermanentError("refused", code="refused-text") for row in refused}
        return EmbeddedTexts(vectors, {**embedded.failures, **failures}, embedded.token_count)


class RejectingStore:
    """Rejects the records whose text has a word; all else is the real store's."""

    def __init__(self, real, word) -> None:
        self._real = real
        self._word = word

    def __getattr__(self, name):
        return getattr(self._real, name)

    def upsert(self, collection, batch):
        bad = [row for row, p in enumerate(batch.payloads) if self._word in p["text"]]
        good = [row for row in range(len(batch.ids)) if row not in bad]
        found = self._real.upsert(collection, batch.take(good))
        rejections = [Rejection(good[one.row], one.code, one.message) for one in found]
        rejections += [Rejection(row, "rejected-text", "rejected") for row in bad]
        return sorted(rejections, key=lambda one: one.row)


@dataclass(frozen=True)
class Saved:
    """All that outlives a process, and what it is made of."""

    files: dict
    contents: object
    rows: bytes
    faults: bool


class CrashIndex:
    """An index whose every run is a process of its own.

    ``faults`` says whether the embedder and the store refuse some words; ``fresh`` makes an empty
    workspace.
    """

    def __init__(self, folder: Path, *, fresh=MemoryWorkspace, **more) -> None:
        self.rows = folder / "rows.jsonl"
        self.workspace = fresh()
        self._fresh = fresh
        self.faults = True
        self._name = f"crash-{next(_numbers)}"
        values = {
            "index": "dying",
            "workspace": "unused",
            "source": {"kind": "table", "path": str(self.rows)},
            "chunker": {"kind": "text", "max_tokens": 3},
            "embedder": {"kind": "hashing", "dimension": 8},
            "store": {"kind": "memory", "name": self._name},
            "shard_count": 2,
            "max_delete_fraction": 1.0,
            "run": {"segment_chunks": 4},
            **more,
        }
        self.settings = Settings.model_validate_json(json.dumps(values))

    def write(self, documents) -> None:
        """Make the source hold these documents: texts by id; what is no text cannot be read."""
        rows = [json.dumps({"id": name, "text": text}) for name, text in documents.items()]
        self.rows.write_text("".join(row + "\n" for row in rows))

    @contextmanager
    def living(self, process=None):
        """Let runs happen in a process."""
        with seams(
            (process or Process()).seams(
                workspace=lambda _: self.workspace,
                embedder=lambda real: RefusingEmbedder(real, REFUSED) if self.faults else real,
                store=lambda real: RejectingStore(real, REJECTED) if self.faults else real,
            )
        ):
            yield

    def ingest(self, process=None, documents=None, **options):
        """One run of ingest."""
        if documents is not None:
            self.write(documents)
        with self.living(process):
            return run_inline(lambda e: ingest(self.settings, e, RunOptions(**options)))

    def replay(self, process=None):
        """Replay all that is open; None when nothing is, as the command does."""
        with self.living(process):
            letters = open_letters(self.workspace, self.settings.index, self.version)
            if not letters:
                return None
            return run_inline(lambda e: replay(self.settings, e, letters))

    def compact(self, process=None):
        """One compaction."""
        with self.living(process):
            run_inline(lambda e: compact(self.settings, e, RunOptions()))

    def audit(self, process=None, **how):
        """One audit."""
        with self.living(process):
            return audit(self.settings, RunOptions(), **how)

    def save(self) -> Saved:
        """Remember everything."""
        contents = copy.deepcopy(memory._CONTENTS.get(self._name, memory._Contents()))
        files = {path: self.workspace.read(path) for path in self.paths()}
        return Saved(files, contents, self.rows.read_bytes(), self.faults)

    def restore(self, saved: Saved) -> None:
        """Go back to what was remembered."""
        self.workspace = self._fresh()
        for path, data in saved.files.items():
            self.workspace.create(path, data)
        memory._CONTENTS[self._name] = copy.deepcopy(saved.contents)
        self.rows.write_bytes(saved.rows)
        self.faults = saved.faults

    def move(self, fresh) -> None:
        """Have everything in another kind of workspace from now on."""
        saved, self._fresh = self.save(), fresh
        self.restore(saved)

    def paths(self) -> set:
        """All files of the workspace."""
        return {entry.path for entry in self.workspace.list("indexes")}

    @property
    def manifest(self):
        return Manifest(self.workspace, self.settings.index).read()

    @property
    def version(self):
        return self.manifest.newest

    @property
    def chunks(self) -> ChunkLayer:
        return ChunkLayer(self.workspace, self.settings.index, self.version.chunking.id)

    @property
    def vectors(self) -> VectorLayer:
        return VectorLayer.of_version(self.workspace, self.settings.index, self.version)

    def store(self):
        """A client of the store that counts nothing."""
        return store_of(self.settings)

    def last_report(self):
        """Of the newest run; None when it did not end."""
        return next(read_reports(self.workspace, self.settings.index))[1]

    def state(self) -> "State":
        """What people see of the index."""
        store, version = self.store(), self.version
        found = store.fetch(version.collection, sorted(store.ids(version.collection)))
        return State(
            payloads=dict(zip(found.ids, found.payloads, strict=True)),
            vectors={r: v.tobytes() for r, v in zip(found.ids, found.vectors, strict=True)},
            ledger=self.ledger(),
            letters={
                item.letter.id
                for item in open_letters(self.workspace, self.settings.index, version)
            },
            version=timeless(version),
            counts={name: version.counts.get(name) for name in ("documents", "records")},
            alias=store.alias_target(self.settings.index),
        )

    def ledger(self) -> dict:
        """Fingerprint and chunk count by document key."""
        found = {}
        for shard in range(self.settings.shard_count):
            for key, entry in Ledger.fold(self.chunks, shard)[0].entries():
                found[key] = (entry.fingerprint, entry.chunk_count)
        return found


def timeless(version):
    """A version without what differs from one building of it to the next."""
    history = tuple(line["event"] for line in version.history)
    times = {"created": "", "published": None, "retired": None, "pruned": version.pruned and ""}
    # Of equal texts either is found first: how often rests on the order of the segments.
    gates = tuple((gate["name"], gate["verdict"]) for gate in version.gates)
    return replace(version, last_run="", counts={}, history=history, gates=gates, **times)


@dataclass(frozen=True)
class State:
    """An index as people see it; times, run ids and the layout of segments do not show."""

    payloads: dict
    vectors: dict
    ledger: dict
    letters: set
    version: object
    counts: dict
    alias: str

    def records(self) -> tuple:
        """What a search can find."""
        return self.payloads, self.vectors


def run_inline(work):
    executor = InlineExecutor()
    try:
        return work(executor)
    finally:
        executor.close()


def embedded_twice(index: CrashIndex, *processes: Process) -> Counter:
    """Texts that the embedder was asked for although their segment has, or got, vectors elsewhere.

    A call whose vectors file follows is what the segment cost. Every other call was paid for
    nothing; only the one that the process died in or right after may be.
    """
    wasted = Counter()
    for process in processes:
        texts = None
        for effect in process.effects:
            if effect.kind == "embed":
                wasted.update(texts or ())
                texts = effect.texts
            elif effect.kind == "create" and "/vectors/" in effect.target and texts:
                # Create-only: the segment had no vectors before.
                assert asked_for(index, effect.target) in (None, sorted(set(texts)))
                texts = None
        wasted.update(texts or ())
    return wasted


def asked_for(index: CrashIndex, path: str) -> list | None:
    """Texts of a segment that went through the model, once each; None when it was replaced."""
    shard, number = map(int, re.search(r"s(\d{4})/(\d{8})\.parquet$", path).groups())
    if number not in index.chunks.committed_of(shard):
        return None
    key = SegmentKey(shard, number)
    chunks, digest = index.chunks.chunks(key)
    rows = index.vectors.read(key, digest)
    texts = chunks.column("text").to_pylist()
    return sorted({texts[row] for row in np.flatnonzero(np.isin(rows.origin, [EMBEDDED, DEAD]))})


def litter(index: CrashIndex) -> set:
    """Files that nothing refers to and that no rule excuses.

    Excused are chunk files that no document file names (a process died between the two; they are
    never read, and the next snapshot removes them), and whatever is numbered below a shard's
    snapshot (replaced; the next compaction removes it).
    """
    left, paths = set(), index.paths()
    committed = index.chunks.committed()
    newest_lease = max(int(path.rsplit("/", 1)[-1][:8]) for path in paths if "/lease/" in path)
    starts = snapshot_starts(paths)
    for path in paths:
        if re.search(
            r"/(manifest/|manifest-copy\.json|runs/|dead_letters/|canaries/|versions/|copies/)",
            path,
        ):
            continue
        if "/lease/" in path:
            if int(path.rsplit("/", 1)[-1][:8]) != newest_lease:
                left.add(path)
            continue
        shard, number = map(int, re.search(r"/s(\d{4})/(\d{8})\.", path).groups())
        excused = number < starts.get(shard, 0) or path.endswith(".chunks.parquet")
        if not excused and number not in committed.get(shard, ()):
            left.add(path)
    return left


def snapshot_starts(paths) -> dict:
    """Number that each shard begins with, of those that were compacted."""
    starts = {}
    for path in paths:
        found = re.search(r"/s(\d{4})/(\d{8})\.snapshot$", path)
        if found:
            shard, number = map(int, found.groups())
            starts[shard] = max(number, starts.get(shard, 0))
    return starts


def lived_through(run, process: Process) -> bool:
    """Run; False when the process died."""
    try:
        run(process)
    except Crash:
        return False
    return True
