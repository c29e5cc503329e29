"""What a sync may delete: never because something could not be read, never much in silence."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scenario import CrashIndex

from actors.shard_worker import ShardWorker
from embedmill.errors import DeletionsWithheldError, SourceError, TransientError
from embedmill.run_context import RunContext
from pipelines.summary import summary

TEN = {f"d{number}": f"text of {number}" for number in range(10)}


def documents_of(index):
    return {payload["doc_id"] for payload in index.state().payloads.values()}


def synced(index, documents, **options):
    """Sync, and say whether the index holds what it held."""
    before = index.state().payloads
    index.ingest(documents=documents, **options)
    return index.state().payloads == before


def test_a_sync_that_would_delete_much_is_refused_with_the_numbers_and_the_flag(tmp_path):
    index = CrashIndex(tmp_path, max_delete_fraction=0.2)
    index.ingest(documents=TEN)
    fewer = {name: TEN[name] for name in sorted(TEN)[3:]}
    with pytest.raises(DeletionsWithheldError, match="3 of 10 documents are gone") as caught:
        index.ingest(documents=fewer)
    assert caught.value.code == "too-many-deletions"
    assert "--allow-deletes" in caught.value.hint
    assert documents_of(index) == set(TEN)
    assert index.last_report().status == "failed"
    assert not synced(index, fewer, allow_deletes=True)
    assert documents_of(index) == set(fewer)


def test_a_sync_may_delete_as_much_as_the_settings_say(tmp_path):
    index = CrashIndex(tmp_path, max_delete_fraction=0.2)
    index.ingest(documents=TEN)
    report = index.ingest(documents={name: TEN[name] for name in sorted(TEN)[2:]})
    assert report.documents.removed == 2
    assert documents_of(index) == set(sorted(TEN)[2:])


@pytest.mark.parametrize("what", ["an empty file", "no file"])
def test_a_source_that_reads_nothing_deletes_nothing(tmp_path, what):
    index = CrashIndex(tmp_path, max_delete_fraction=0.2)
    index.ingest(documents=TEN)
    index.rows.write_bytes(b"")
    if what == "no file":
        index.rows.unlink()
    with pytest.raises(
        (DeletionsWithheldError, SourceError), match=r"10 of 10 documents|No such file"
    ):
        index.ingest()
    assert documents_of(index) == set(TEN)


def test_a_row_of_unknown_identity_keeps_a_sync_from_deleting(tmp_path):
    index = CrashIndex(tmp_path)
    index.ingest(documents=TEN)
    rows = [json.dumps({"id": name, "text": text}) for name, text in list(TEN.items())[:4]]
    index.rows.write_text("\n".join([*rows, json.dumps({"text": "whose?"}), ""]))
    report = index.ingest()
    assert (report.documents.unidentified, report.documents.removed) == (1, 0)
    assert "6 gone but kept, since no id could be read of 1 row" in next(summary(report))
    assert documents_of(index) == set(TEN)
    index.rows.write_text("\n".join([*rows, ""]))
    assert index.ingest().documents.removed == 6


def test_a_worker_that_has_not_seen_the_whole_source_deletes_nothing(tmp_path):
    """One that takes the place of another after the scan: to it everything is gone."""
    index = CrashIndex(tmp_path)
    index.ingest(documents=TEN)
    version = index.version
    context = RunContext(
        settings=index.settings,
        run="20010101T000000Z",
        version=version.name,
        collection=version.collection,
        chunking=version.chunking,
        embedding=version.embedding,
    )
    files = index.paths()
    with index.living():
        worker = ShardWorker(context, 0, 1, None)
        for ask in (worker.totals, worker.remove_unseen):
            with pytest.raises(TransientError, match="nothing was deleted"):
                ask()
        assert index.paths() == files
        worker.finish()
        assert worker.totals().unseen == len(TEN)


def test_append_never_deletes(tmp_path):
    index = CrashIndex(tmp_path, sync="append", max_delete_fraction=0.0)
    index.ingest(documents=TEN)
    report = index.ingest(documents={"new": "one more"})
    documents = report.documents
    assert (documents.added, documents.removed, documents.withheld) == (1, 0, 0)
    assert documents_of(index) == {*TEN, "new"}


def test_a_table_that_was_cut_short_deletes_nothing(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    index = CrashIndex(tmp_path, source={"kind": "table", "path": str(path)})
    rows = [json.dumps({"id": name, "text": f"{text} {name}"}) for name, text in TEN.items()]
    path.write_bytes(gzip.compress("\n".join([*rows, ""]).encode()))
    index.ingest()
    path.write_bytes(path.read_bytes()[:-40])
    report = index.ingest()
    assert (report.documents.unidentified, report.documents.removed) == (1, 0)
    assert documents_of(index) == set(TEN)


def test_a_part_of_the_source_that_is_damaged_deletes_nothing(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    index = CrashIndex(tmp_path, source={"kind": "table", "path": str(folder)})
    for part in range(2):
        names = sorted(TEN)[part * 5 : part * 5 + 5]
        table = pa.table({"id": names, "text": [TEN[name] for name in names]})
        pq.write_table(table, folder / f"{part}.parquet", compression="none")
    index.ingest()
    damaged = bytearray((folder / "1.parquet").read_bytes())
    damaged[4:60] = b"\xff" * 56
    (folder / "1.parquet").write_bytes(damaged)
    report = index.ingest()
    assert (report.documents.unidentified, report.documents.removed) == (1, 0)
    assert documents_of(index) == set(TEN)


def files_index(tmp_path):
    folder = tmp_path / "files"
    for name, text in TEN.items():
        path = folder / ("inner" if name > "d4" else "") / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    index = CrashIndex(tmp_path, source={"kind": "files", "path": str(folder)})
    index.write({})
    index.ingest()
    return index, folder


def test_a_folder_that_cannot_be_listed_deletes_nothing(tmp_path, monkeypatch):
    index, _ = files_index(tmp_path)
    before = documents_of(index)
    real = os.scandir

    def scandir(path="."):
        if str(path).rstrip("/").endswith("inner"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(SourceError, match="inner"):
        index.ingest()
    assert documents_of(index) == before
    assert len(before) == 10


def test_a_file_that_vanishes_during_the_scan_deletes_nothing(tmp_path, monkeypatch):
    index, _ = files_index(tmp_path)
    before = documents_of(index)
    real = Path.open

    def vanished(path, *arguments, **more):
        if path.name == "d7.txt":
            raise FileNotFoundError(2, "No such file", str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", vanished)
    with pytest.raises(SourceError, match=r"d7\.txt"):
        index.ingest()
    assert documents_of(index) == before


def test_a_file_that_cannot_be_decoded_any_more_keeps_its_records(tmp_path):
    index, folder = files_index(tmp_path)
    (folder / "d1.txt").write_bytes(b"\xff\xfe\x00broken \x9d")
    report = index.ingest()
    assert report.documents.dead == 1
    assert report.documents.removed == 0
    assert "d1.txt" in documents_of(index)
