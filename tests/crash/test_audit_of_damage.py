"""Damage done by hand to a real store and to files: found by name, put right without embedding."""

import json
import uuid

import numpy as np
import pytest
from commands import KilledIndex
from typer.testing import CliRunner

from embedmill.assembly import Seams, seams, store_of, workspace_of
from embedmill.errors import DamagedFileError, RefusedError
from embedmill.executor import InlineExecutor
from embedmill.manifest import Manifest
from embedmill.run_report import read_reports
from embedmill.settings import MemoryStoreSettings, QdrantEmbeddedSettings
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import made_up_texts
from embedmill.vector_store import VectorBatch
from embedmill.work_left import work_left
from pipelines.audit import audit
from pipelines.cli import app
from pipelines.compact import compact
from pipelines.copy import copy
from pipelines.export import export
from pipelines.ingest import ingest
from pipelines.reembed import reembed
from pipelines.run_options import RunOptions

FINDINGS = 7
TEXTS = made_up_texts(40)


class NoEmbedder:
    """Whoever asks it pays twice."""

    def __init__(self, real) -> None:
        self.recipe = real.recipe

    def embed(self, texts, role):
        raise AssertionError("an audit embeds nothing")


def run(settings):
    executor = InlineExecutor()
    try:
        return ingest(settings, executor)
    finally:
        executor.close()


def rebuilt(settings):
    executor = InlineExecutor()
    try:
        return reembed(settings, executor)
    finally:
        executor.close()


def copied(settings, to):
    executor = InlineExecutor()
    try:
        return copy(settings, to, executor, RunOptions())
    finally:
        executor.close()


@pytest.fixture
def built(tmp_path):
    """An index in a real store; its source, settings and contents."""
    rehearsal = KilledIndex(tmp_path)
    rehearsal.write(TEXTS)
    settings = rehearsal.settings()
    run(settings)
    return rehearsal, settings, contents_of(settings)


def audited(settings, **how):
    with seams(Seams(embedder=NoEmbedder)):
        return audit(settings, RunOptions(), **how)


class Vandal:
    """Has the store open and does harm."""

    def __init__(self, settings) -> None:
        self._settings = settings
        self._collection = Manifest(workspace_of(settings), settings.index).read().newest.collection

    def __enter__(self):
        self._store = store_of(self._settings)
        self.ids = sorted(self._store.ids(self._collection))
        return self

    def __exit__(self, *_):
        self._store.close()

    def delete(self, ids):
        self._store.delete(self._collection, ids)

    def alter(self, ids, change):
        batch = self._store.fetch(self._collection, ids)
        self._put(batch.ids, batch.vectors, [change(dict(p)) for p in batch.payloads])

    def turn(self, ids):
        batch = self._store.fetch(self._collection, ids)
        self._put(batch.ids, np.ascontiguousarray(batch.vectors[:, ::-1]), batch.payloads)

    def double(self, ids):
        batch = self._store.fetch(self._collection, ids)
        others = [uuid.uuid5(record, "copy") for record in batch.ids]
        self._put(others, batch.vectors, batch.payloads)
        return others

    def add(self, payload):
        record = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(payload))
        vector = np.zeros((1, 32), np.float32)
        vector[0, 0] = 1
        self._put([record], vector, [payload])
        return record

    def _put(self, ids, vectors, payloads):
        assert not self._store.upsert(self._collection, VectorBatch(ids, vectors, payloads))


def test_every_kind_of_damage_is_found_by_name_and_put_right_without_embedding(built):
    _, settings, before = built
    with Vandal(settings) as vandal:
        ids = vandal.ids
        vandal.delete(ids[:4])
        vandal.alter(ids[4:7], lambda payload: {**payload, "text": "altered", "more": 1})
        vandal.turn(ids[7:9])
        doubles = vandal.double(ids[9:11])
        orphan = vandal.add({"doc_id": "nobody's", "chunk_index": 0, "text": "x"})
        alien = vandal.add({"hello": "world"})
    result = audited(settings)
    assert result.checked == len(ids)
    assert result.counts == {
        "missing": 4,
        "stale": 3,
        "other-vector": 2,
        "duplicate": 2,
        "orphaned": 2,
    }
    found = {kind: {f.record for f in result.examples if f.kind == kind} for kind in result.counts}
    assert found == {
        "missing": set(ids[:4]),
        "stale": set(ids[4:7]),
        "other-vector": set(ids[7:9]),
        "duplicate": set(doubles),
        "orphaned": {orphan, alien},
    }
    one = next(f for f in result.examples if f.kind == "stale")
    assert (one.doc_id, one.chunk_index) == (
        before.payloads[one.record]["doc_id"],
        before.payloads[one.record]["chunk_index"],
    )
    assert one.detail == "other content in: more, text"
    repaired = audited(settings, repair=True)
    assert repaired.repaired
    assert repaired.counts == result.counts
    assert audited(settings).clean
    assert_same_contents(contents_of(settings), before)
    assert run(settings).problems() == []


def test_an_audit_without_damage_finds_nothing_and_changes_nothing(built):
    _, settings, before = built
    assert audited(settings, with_source=True).clean
    assert audited(settings, repair=True).clean
    assert_same_contents(contents_of(settings), before)


def test_a_share_finds_what_is_missing_always_and_a_sample_of_the_rest(built):
    _, settings, _ = built
    with Vandal(settings) as vandal:
        vandal.delete(vandal.ids[:3])
        vandal.alter(vandal.ids[3:], lambda payload: {**payload, "text": "altered"})
        others = len(vandal.ids) - 3
    counts = [audited(settings, share=share).counts for share in (0.0, 0.3, 0.3, 1.0)]
    assert [count["missing"] for count in counts] == [3] * 4
    assert counts[0]["stale"] == 0
    assert counts[1] == counts[2]
    assert 0.1 * others < counts[1]["stale"] < 0.5 * others
    assert counts[3]["stale"] == others


def vectors_file(settings):
    workspace = workspace_of(settings)
    largest = max(workspace.list("indexes/rehearsal/vectors"), key=lambda entry: entry.size)
    return workspace, largest.path


@pytest.mark.parametrize("how", ["torn", "emptied", "deleted"])
def test_a_damaged_vectors_file_is_named_and_costs_no_record(built, how):
    _, settings, before = built
    workspace, path = vectors_file(settings)
    data = workspace.read(path)
    if how == "deleted":
        workspace.delete([path])
    else:
        workspace.replace(path, data[: len(data) // 2] if how == "torn" else b"")
    for repair in (False, True):
        result = audited(settings, repair=repair)
        assert result.counts == {"damaged-file": 1}
        assert path in result.examples[0].detail
        assert "run embedmill ingest" in result.examples[0].detail
    assert_same_contents(contents_of(settings), before)
    workspace.delete([path])
    report = run(settings)
    assert 0 < report.chunks.embedded < len(before.payloads)
    assert report.records.upserted == 0
    assert audited(settings).clean


@pytest.mark.parametrize("nth", range(2))
def test_what_is_recorded_of_the_store_may_be_lost_anywhere(built, nth):
    rehearsal, settings, _ = built
    later = {f"added-{n}": TEXTS["doc-00001"] + f" {n}" for n in range(8)}
    changed = {name: f"{text} again" for name, text in TEXTS.items()}
    for texts in ({**TEXTS, **later}, {**changed, **later}, changed):
        rehearsal.write(texts)
        run(settings)
    before = contents_of(settings)
    workspace = workspace_of(settings)
    paths = sorted(entry.path for entry in workspace.list("indexes/rehearsal/applied"))
    shard = [path for path in paths if "/s0000/" in path]
    workspace.delete([shard[nth]])
    left = work_left(workspace, "rehearsal", Manifest(workspace, "rehearsal").read().newest)
    assert left.store == len(shard) - nth
    with pytest.raises(
        RefusedError, match=f"{left.store} segment.* not in the store yet"
    ) as caught:
        audited(settings)
    assert "embedmill ingest SETTINGS" in caught.value.hint
    report = run(settings)
    assert report.chunks.embedded == 0
    assert report.records.upserted > 0
    assert_same_contents(contents_of(settings), before)
    assert audited(settings).clean
    assert sorted(e.path for e in workspace.list("indexes/rehearsal/applied")) == paths
    rehearsal.write({**changed, "more": "after all that"})
    assert run(settings).status == "succeeded"


@pytest.mark.parametrize("nth", [0, -1])
def test_no_command_takes_an_index_for_whole_that_lacks_documents(built, nth, tmp_path):
    rehearsal, settings, _ = built
    rehearsal.write({name: f"{text} again" for name, text in TEXTS.items()})
    run(settings)
    before = contents_of(settings)
    workspace = workspace_of(settings)
    paths = sorted(entry.path for entry in workspace.list("indexes/rehearsal/chunks"))
    lost = [path for path in paths if "/s0000/" in path and path.endswith(".docs.parquet")][nth]
    data = workspace.read(lost)
    workspace.delete([lost])
    version = Manifest(workspace, settings.index).read().newest
    other = settings.embedder.model_copy(update={"dimension": 16})
    swapped = settings.model_copy(update={"embedder": other})
    for command in (
        lambda: run(settings),
        lambda: audited(settings, repair=True),
        lambda: export(settings, str(tmp_path / "exported")),
        lambda: copied(settings, MemoryStoreSettings(kind="memory", name=f"copy-{nth}")),
        lambda: rebuilt(swapped),
        lambda: work_left(workspace, settings.index, version),
    ):
        with pytest.raises(DamagedFileError, match=f"{lost} was committed and is missing"):
            command()
    assert_same_contents(contents_of(settings), before)
    # A copy does not lose them either, after it had them.
    workspace.create(lost, data)
    other = QdrantEmbeddedSettings(kind="qdrant_embedded", path=str(tmp_path / "other"))
    copied(settings, other)
    workspace.delete([lost])
    with pytest.raises(DamagedFileError, match=f"{lost} was committed and is missing"):
        copied(settings, other)
    workspace.create(lost, data)
    assert copied(settings, other).records.upserted == 0
    assert run(settings).records.upserted == 0
    assert audited(settings).clean


def test_a_damaged_chunks_file_costs_no_record_either(built):
    _, settings, before = built
    workspace = workspace_of(settings)
    path = next(
        entry.path
        for entry in workspace.list("indexes/rehearsal/chunks")
        if entry.path.endswith(".chunks.parquet")
    )
    workspace.replace(path, b"PAR1 nothing of the kind PAR1")
    result = audited(settings, repair=True)
    assert result.counts == {"damaged-file": 1}
    assert path in result.examples[0].detail
    assert_same_contents(contents_of(settings), before)


def test_the_source_is_compared_on_request(built):
    rehearsal, settings, _ = built
    names = sorted(TEXTS)
    changed = {**TEXTS, names[0]: "another text", "added": "one more"}
    del changed[names[1]]
    rehearsal.write(changed)
    assert audited(settings).clean
    result = audited(settings, with_source=True)
    assert {(d.kind, d.doc_id) for d in result.examples} == {
        ("changed-at-source", names[0]),
        ("gone-from-source", names[1]),
        ("not-ingested", "added"),
    }


def test_an_audit_begins_no_index_and_takes_no_half_done_one(built, tmp_path):
    _, settings, _ = built
    with pytest.raises(RefusedError, match="has no versions yet"):
        audited(settings.model_copy(update={"index": "not-there"}))
    workspace = workspace_of(settings)
    assert not list(workspace.list("indexes/not-there"))
    applied = max(entry.path for entry in workspace.list("indexes/rehearsal/applied"))
    workspace.delete([applied])
    for pipeline, command in (("audit", audited), ("compact", compacted)):
        with pytest.raises(RefusedError, match="not in the store yet"):
            command(settings)
        # Without a report it would pass for killed, and the next ingest would start workers.
        _, report = next(read_reports(workspace, "rehearsal"))
        assert (report.pipeline, report.status) == (pipeline, "failed")
        assert "not in the store yet" in report.error


def compacted(settings):
    executor = InlineExecutor()
    try:
        return compact(settings, executor, RunOptions())
    finally:
        executor.close()


@pytest.mark.crash
def test_the_command_shows_findings_by_its_exit_status_and_repairs(built):
    rehearsal, settings, _ = built
    with Vandal(settings) as vandal:
        vandal.delete(vandal.ids[:5])

    def command(*more):
        line = ["audit", "-c", str(rehearsal.config), *more]
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, line, catch_exceptions=False)

    found = command()
    assert found.exit_code == FINDINGS, found.stderr
    assert "missing" in found.stdout
    assert "--repair" in found.stdout
    told = command("--json")
    assert told.exit_code == FINDINGS
    assert json.loads(told.stdout)["counts"] == {"missing": 5}
    repaired = command("--repair")
    assert repaired.exit_code == 0, repaired.stdout + repaired.stderr
    assert "audited again: clean" in repaired.stdout
    assert command("--with-source", "--share", "0.5").exit_code == 0
