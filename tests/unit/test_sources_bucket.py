"""Sources in a bucket, through a server that speaks S3."""

import gzip
import io
import json
import pickle
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from s3_server import s3_server
from source_rows import ids, read
from typer.testing import CliRunner

from embedmill.errors import SettingsError, SourceError, TransientError
from embedmill.source_settings import FilesSourceSettings, TableSourceSettings
from embedmill.sources.files import FilesSource
from embedmill.sources.tables import TableSource
from pipelines.cli import app

NAMES = ["%# +.md", "100%.md", "a b.md", "a%20b.md", "a+b.md", "cafe\u0301.md", "caf\u00e9.md"]
NAMES += ["q?x=1.md", "\U0001f600.md"]


@pytest.fixture(scope="module")
def server():
    with s3_server() as server:
        yield server


@pytest.fixture
def client(server):
    with server.bucket("documents"):
        yield server.client


@pytest.fixture
def put(server, client):
    """Puts objects: contents by key."""
    return partial(server.put, "documents")


@pytest.fixture
def files(server):
    def source_of(path, **settings):
        values = {"kind": "files", "path": path, "bucket": server.access, **settings}
        return FilesSource(FilesSourceSettings.model_validate(values))

    return source_of


@pytest.fixture
def tables(server):
    def source_of(path, **settings):
        values = {"kind": "table", "path": path, "bucket": server.access, **settings}
        return TableSource(TableSourceSettings.model_validate(values))

    return source_of


def test_a_key_is_taken_as_it_is_and_its_id_leads_back_to_it(client, put, files):
    put({f"a b/{name}": name.encode() for name in NAMES})

    rows = read(files("s3://documents/a b"))

    assert [row.doc_id for row in rows] == sorted(NAMES)
    assert [row.content.decode() for row in rows] == sorted(NAMES)
    assert rows[0].metadata == '{"path":"%# +.md"}'
    for row in rows:
        found = client.get_object(Bucket="documents", Key=f"a b/{row.doc_id}")
        assert found["Body"].read() == row.content


def test_markers_of_folders_are_no_documents(put, files):
    put({"docs/": b"", "docs": b"", "docs/a.md": b"a", "x.md/": b"", "empty.md": b"", "in/": b""})

    rows = read(files("s3://documents", include=("**",)))

    assert [(row.doc_id, row.content, row.error_code) for row in rows] == [
        ("docs/a.md", b"a", None),
        ("empty.md", b"", None),
    ]
    assert ids(files("s3://documents/docs")) == ["a.md"]
    assert ids(files("s3://documents/docs/")) == ["a.md"]


def test_a_document_beside_what_is_below_its_key_stays_one(put, files):
    put({"docs": b"text", "docs/": b"", "docs/a.md": b"a"})

    assert ids(files("s3://documents", include=("**",))) == ["docs", "docs/a.md"]
    # Of an object and a prefix with one name the slash says which is meant.
    assert ids(files("s3://documents/docs")) == ["docs"]
    assert ids(files("s3://documents/docs/")) == ["a.md"]


@pytest.mark.parametrize("name", ["docs.md", "x/docs.md"])
def test_content_under_a_key_with_a_slash_is_not_hidden_by_a_marker(put, files, name):
    put({name: b"", f"{name}/": b"text", "other.md": b"o"})

    rows = {row.doc_id: row for row in read(files("s3://documents"))}

    assert {name: row.error_code for name, row in rows.items()} == {
        f"{name}/": "key",
        "other.md": None,
    }
    assert "ends with a slash" in rows[f"{name}/"].error_message


def test_patterns_hold_for_keys(put, files):
    put({"a.md": b"a", "b.txt": b"b", "old/c.md": b"c", ".git/d.md": b"d", "new/e.png": b"e"})

    assert ids(files("s3://documents")) == ["a.md", "b.txt", "old/c.md"]
    assert ids(files("s3://documents", exclude=("old",))) == ["a.md", "b.txt"]
    with pytest.raises(SourceError, match=r"'s3://documents/new' matches .*1 \.png"):
        files("s3://documents/new").splits()


def test_documents_that_nothing_parses_are_named(put, files, caplog):
    put({"a.md": b"a", "b.pdf": b"b", "c.png": b"c"})

    assert ids(files("s3://documents")) == ["a.md"]
    [warning] = [record for record in caplog.records if record.name.startswith("embedmill")]
    assert warning.getMessage().startswith("1 .pdf left out: nothing here parses them")


def test_what_cannot_be_listed_is_refused_with_a_reason(put, files, tables):
    with pytest.raises(SourceError, match="no such object, and none below it") as error:
        files("s3://documents/nowhere").splits()
    assert "`source.path`" in error.value.hint
    with pytest.raises(SourceError, match="there is no such bucket"):
        files("s3://nowhere/x").splits()
    for part in ("a//b", "./a", "tab\t"):
        with pytest.raises(SourceError, match=r"path segment") as error:
            files(f"s3://documents/{part}").splits()
        assert error.value.code == "key"
    with pytest.raises(SettingsError, match="'s3://' cannot be opened"):
        files("s3://").splits()
    put({"rows": b"{}"})
    with pytest.raises(SourceError, match="'s3://documents/rows' is no table by its ending"):
        tables("s3://documents/rows").splits()


def test_an_object_that_is_gone_fails_the_split(client, put, files):
    put({"a.md": b"a", "b.md": b"b"})
    source = pickle.loads(pickle.dumps(files("s3://documents")))
    (split,) = source.splits()
    client.delete_object(Bucket="documents", Key="b.md")

    with pytest.raises(SourceError, match=r"s3://documents/b\.md was listed but is gone"):
        list(source.read(split))


def test_tables_of_every_format_in_one_request_or_in_parts(put, tables, monkeypatch):
    monkeypatch.setattr("embedmill.sources.bucket._REPLY_BYTES", 1_000)
    rows = [{"id": f"{number:03}", "text": f"text {number}"} for number in range(300)]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    put({"t/a b.jsonl": lines, "t/b.jsonl.gz": gzip.compress(lines), "t/c.txt": b"x"})
    put({"u/[1].parquet": parquet.getvalue()})

    expected = [row["id"] for row in rows]
    assert ids(tables("s3://documents/t/a b.jsonl")) == expected
    assert ids(tables("s3://documents/t")) == 2 * expected
    assert ids(tables("s3://documents/t/*.gz")) == expected
    assert ids(tables("s3://documents/u/[1].parquet")) == expected
    assert ids(tables("s3://documents/*/*.parquet")) == expected


def test_a_table_whose_key_cannot_be_asked_for_is_a_row_with_its_cause(put, tables):
    put({"t/a.jsonl": b'{"id": "a", "text": "x"}', "t//b.jsonl": b"{}", "t/c.jsonl/": b"{}"})

    rows = read(tables("s3://documents/t"))

    assert [(row.uri, row.doc_id, row.error_code) for row in rows] == [
        ("/b.jsonl", "", "key"),
        ("a.jsonl:1", "a", None),
        ("c.jsonl", "", "key"),
    ]
    assert rows[0].error_message.startswith(
        "/b.jsonl cannot be read: its key has two slashes in a row ('t//b.jsonl')"
    )


def test_content_under_the_name_of_the_prefix_is_mentioned(put, files, caplog):
    put({"docs/": b"text", "docs/a.md": b"a"})
    assert ids(files("s3://documents/docs/")) == ["a.md"]
    assert "s3://documents/docs/ has content and no name below the prefix" in caplog.text


def test_an_object_that_changes_while_it_is_read_is_no_mixture(put, tables, monkeypatch):
    monkeypatch.setattr("embedmill.sources.bucket._REPLY_BYTES", 1_000)
    put({"a.jsonl": b'{"id": "a", "text": "%s"}\n' % (b"x " * 2_000_000)})
    source = tables("s3://documents/a.jsonl")
    path = source.splits()[0].paths[0]
    file = source._place.open(path).file
    file.read(10)
    put({"a.jsonl": b'{"id": "b", "text": "%s"}\n' % (b"y " * 2_000_000)})

    with pytest.raises(TransientError, match="changed while it was read"):
        file.read()


@pytest.mark.parametrize("weak", [True, False])
def test_a_large_object_without_a_strong_tag_is_read_in_parts(put, files, monkeypatch, weak):
    real = DomainDispatcherApplication.__call__

    def told(app, environ, start_response):
        def start(status, headers, *more):
            tags = [("ETag", f"W/{value}") for name, value in headers if name == "ETag" and weak]
            return start_response(status, [h for h in headers if h[0] != "ETag"] + tags, *more)

        return real(app, environ, start)

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", told)
    monkeypatch.setattr("embedmill.sources.bucket._REPLY_BYTES", 1_000)
    put({"a.md": b"x" * 30_000})
    source = files("s3://documents")
    assert [len(row.content) for row in read(source)] == [30_000]

    file = source._place.open(source.splits()[0].paths[0]).file
    file.read(10)
    put({"a.md": b"y" * 40_000})
    with pytest.raises(TransientError, match="changed while it was read"):
        file.read()


def test_an_index_is_filled_from_a_bucket_given_by_path(put, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put({"guide/a.md": b"apples", "guide/b.md": b"plums"})
    settings = {
        "index": "other",
        "workspace": "ws",
        "source": {
            "kind": "files",
            "path": "s3://documents/other",
            "bucket": server.access,
        },
        "chunker": {"kind": "auto"},
        "embedder": {"kind": "hashing"},
        "store": {"kind": "discard", "path": "store"},
    }
    (tmp_path / "s.yaml").write_text(json.dumps(settings))

    result = CliRunner().invoke(app, ["ingest", "s.yaml", "--source", "s3://documents/guide"])

    assert result.exit_code == 0, result.output
    assert "guide v1: 2 records" in result.output
    # Of a folder beside it the bucket's address and keys say nothing.
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("apples")
    result = CliRunner().invoke(app, ["ingest", "s.yaml", "--source", str(tmp_path / "notes")])
    assert result.exit_code == 0, result.output
    assert "notes v1: 1 record" in result.output
