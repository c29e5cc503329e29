"""Exporting a version: Parquet that anybody reads, complete whenever its manifest is there."""

import itertools
import json

import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from embedmill.errors import IndexLockedError, RefusedError
from embedmill.exporting import MANIFEST
from embedmill.lease import take_lease
from embedmill.vector_stores.memory import MemoryStore
from embedmill.workspace import LocalWorkspace
from pipelines import export as exporting
from pipelines.export import export

TEXTS = {f"d{number}": f"one two three four five {number} six" for number in range(12)}


@pytest.fixture
def index(small_index, many_parts, monkeypatch):
    monkeypatch.setattr("embedmill.exporting._FILE_BYTES", 200)
    index = small_index()
    index._more["source"] = {
        "kind": "table",
        "path": str(index.folder),
        "metadata_columns": ["lang"],
    }
    index.ingest(rows_of(TEXTS))
    return index


def rows_of(texts):
    return [{"id": name, "text": text, "lang": "en"} for name, text in texts.items()]


def exported(index, to, number=None):
    with index.seams():
        return export(index.settings, str(to), number, sleep=index.clock.sleep)


def check(index, to):
    """The files of the manifest hold what the store has, and there are no others."""
    manifest = json.loads((to / MANIFEST).read_text())
    names = [file["name"] for file in manifest["files"]]
    there = [path.name for path in to.iterdir() if path.name != ".staging"]
    assert sorted(there) == sorted([*names, MANIFEST])
    assert pyarrow.dataset.dataset(to).count_rows() == manifest["records"]
    rows = {}
    for file in manifest["files"]:
        table = pq.read_table(to / file["name"])
        assert table.num_rows == file["records"]
        assert table.schema.field("vector").type.list_size == manifest["dimension"] == 8
        rows |= {row["id"]: row for row in table.to_pylist()}
    store, name = MemoryStore(index.settings.store), index.version.collection
    ids = sorted(store.ids(name))
    assert sorted(rows) == [str(one) for one in ids]
    assert manifest["records"] == len(ids)
    found = store.fetch(name, ids)
    for record, vector, payload in zip(found.ids, found.vectors, found.payloads, strict=True):
        row = rows[str(record)]
        np.testing.assert_allclose(np.array(row["vector"], np.float32), vector, atol=1e-6)
        assert json.loads(row["metadata"]) == payload["metadata"] == {"lang": "en"}
        for key in ("doc_id", "chunk_index", "text", "start", "end", "headings", "uri"):
            assert row[key] == payload[key]


def test_an_export_holds_every_record_and_says_what_it_is(index, tmp_path):
    manifest = exported(index, tmp_path / "out")
    check(index, tmp_path / "out")
    assert len(manifest["files"]) > 3
    assert (manifest["index"], manifest["version"], manifest["metric"]) == ("small", "v1", "cosine")
    assert manifest["model"]


def test_an_export_is_not_written_to_where_the_next_ingest_would_read_it(index):
    before = sorted(index.folder.rglob("*"))
    with pytest.raises(RefusedError, match="read as a document") as caught:
        exported(index, index.folder / "out")
    assert caught.value.code == "own-source"
    assert sorted(index.folder.rglob("*")) == before


def test_the_same_state_is_not_written_again(index, tmp_path):
    exported(index, tmp_path)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    exported(index, tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_another_state_takes_the_place_of_the_first_and_leaves_other_files(index, tmp_path):
    exported(index, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    index.ingest(rows_of({**TEXTS, "d1": "changed", "new": "seven"}))
    exported(index, tmp_path)
    (tmp_path / "notes.txt").unlink()
    check(index, tmp_path)


def test_a_file_that_was_cut_or_removed_is_written_again(index, tmp_path):
    exported(index, tmp_path)
    one, two, *_ = sorted(tmp_path.glob("*.parquet"))
    one.unlink()
    two.write_bytes(two.read_bytes()[:-1])
    exported(index, tmp_path)
    check(index, tmp_path)


@pytest.mark.parametrize("moment", range(20))
def test_an_export_that_is_killed_is_completed_by_the_next(index, tmp_path, monkeypatch, moment):
    index.ingest(rows_of({**TEXTS, "d1": "changed"}))
    effects = itertools.count()

    class Killing(LocalWorkspace):
        def create(self, path, data):
            if next(effects) == moment:
                raise KeyboardInterrupt
            super().create(path, data)

        def delete(self, paths):
            if next(effects) == moment:
                raise KeyboardInterrupt
            super().delete(paths)

    with monkeypatch.context() as killing:
        killing.setattr(exporting, "open_workspace", lambda _: Killing(tmp_path))
        try:
            exported(index, tmp_path)
        except KeyboardInterrupt:
            assert moment > 0 or not (tmp_path / MANIFEST).exists()
    # Before all files are there, nothing says that they are.
    if (tmp_path / MANIFEST).exists():
        files = json.loads((tmp_path / MANIFEST).read_text())["files"]
        assert all((tmp_path / file["name"]).exists() for file in files)
    exported(index, tmp_path)
    check(index, tmp_path)


def test_the_export_of_another_index_is_left_alone(index, tmp_path):
    exported(index, tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    other = json.loads((tmp_path / MANIFEST).read_text()) | {"index": "other"}
    (tmp_path / MANIFEST).write_text(json.dumps(other))
    with pytest.raises(RefusedError, match="the export of index 'other' is there") as refused:
        exported(index, tmp_path)
    assert "name another folder" in refused.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_only_files_of_its_own_earlier_states_are_deleted(index, tmp_path):
    theirs = [
        "other-v1-0123abcd-s0000-00000.parquet",
        "small-v1-v2-0123abcd-s0000-00000.parquet",
        "inner/small-v1-0123abcd-s0000-00000.parquet",
    ]
    earlier = "small-v1-0123abcd-s0000-00000.parquet"
    (tmp_path / "inner").mkdir()
    for name in (*theirs, earlier):
        (tmp_path / name).write_text("x")
    exported(index, tmp_path)
    assert all((tmp_path / name).exists() for name in theirs)
    assert not (tmp_path / earlier).exists()


def test_a_torn_manifest_is_written_again(index, tmp_path):
    exported(index, tmp_path)
    (tmp_path / MANIFEST).write_text('{"index"')
    exported(index, tmp_path)
    check(index, tmp_path)


def test_what_is_not_complete_is_not_exported(index, tmp_path):
    gone = max(path for path in index.workspace.files if "/applied/" in path)
    del index.workspace.files[gone]
    with pytest.raises(RefusedError, match="not in the store yet"):
        exported(index, tmp_path)
    with pytest.raises(RefusedError, match="there is no version v7"):
        exported(index, tmp_path, 7)
    with take_lease(index.workspace, "small", "ingest"), pytest.raises(IndexLockedError):
        exported(index, tmp_path)
    assert not list(tmp_path.glob("*.*"))
