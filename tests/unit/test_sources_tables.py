import gzip
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_rows import read

from embedmill.document import documents_of
from embedmill.errors import SourceError
from embedmill.settings import TableSourceSettings
from embedmill.sources.listing import open_binary
from embedmill.sources.tables import TableSource

LINES = b"".join(b'{"id":"%d","text":"x"}\n' % number for number in range(3))


def source_of(path, open_file=open_binary, **settings):
    values = TableSourceSettings(kind="table", path=str(path), **settings)
    return TableSource(values, open_file=open_file)


def ids(path):
    return [row.doc_id for row in read(source_of(path))]


def write_line(path, doc_id):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"id":"%b","text":"x"}\n' % doc_id.encode())


def test_a_folder_holds_tables_of_every_format(tmp_path):
    write_line(tmp_path / "a.jsonl", "1")
    write_line(tmp_path / "deep" / "b.ndjson", "2")
    (tmp_path / "c.csv").write_bytes(b"id,text\n3,x\n")
    (tmp_path / "d.TSV").write_bytes(b"id\ttext\n4\tx\n")
    pq.write_table(pa.table({"id": ["5"], "text": ["x"]}), tmp_path / "e.parquet")
    (tmp_path / "README.md").write_bytes(b"no table")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "empty.csv").write_bytes(b"")

    rows = read(source_of(tmp_path))

    assert [(row.doc_id, row.uri) for row in rows] == [
        ("1", "a.jsonl:1"),
        ("3", "c.csv:2"),
        ("4", "d.TSV:2"),
        ("2", "deep/b.ndjson:1"),
        ("5", "e.parquet:1"),
    ]


def test_a_text_that_is_no_number_is_no_word_either(tmp_path):
    lines = b'{"id":"1","text":NaN}\n{"id":"2","text":-Infinity}\n{"id":"3","text":null}\n'
    (tmp_path / "a.jsonl").write_bytes(lines)
    numbers = pa.table({"id": ["4", "5", "6"], "text": [float("nan"), None, 1.5]})
    pq.write_table(numbers, tmp_path / "b.parquet")

    rows = read(source_of(tmp_path))

    assert [(row.doc_id, row.content) for row in rows] == [
        *((number, b"") for number in "12345"),
        ("6", b"1.5"),
    ]


def test_numbers_that_json_does_not_have_are_counted_by_file_and_column(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"id":"1","text":"x","n":NaN,"deep":{"x":[1,-Infinity]},"none":null}\n'
        b'{"id":"2","text":"x","n":Infinity,"deep":null,"none":null}\n'
        b'{"id":"3","text":"x","n":0.5}\n'
    )
    numbers = {"id": ["4", "5"], "text": ["x", "y"], "n": [float("nan"), 2.0], "none": [None] * 2}
    pq.write_table(pa.table(numbers | {"deep": [[1.0], None]}), tmp_path / "b.parquet")

    rows = read(source_of(tmp_path, metadata_columns=("n", "deep", "none")))

    assert rows[0].metadata == '{"deep":{"x":[1,null]},"n":null,"none":null}'
    told = "is NaN or infinite, which JSON does not have, and kept as null: in"
    assert caplog.messages == [
        f"a.jsonl: 'deep' {told} 1 row",
        f"a.jsonl: 'n' {told} 2 rows",
        f"b.parquet: 'n' {told} 1 row",
    ]


def test_a_glob_chooses_files(tmp_path):
    for name in ("a/1.jsonl", "a/2.jsonl", "b/deep/3.jsonl"):
        write_line(tmp_path / name, name[-7])
    (tmp_path / "a" / "README.md").write_bytes(b"no table")

    assert ids(tmp_path / "a" / "*") == ["1", "2"]
    assert ids(tmp_path / "**" / "[13].jsonl") == ["1", "3"]
    assert read(source_of(tmp_path / "b" / "**"))[0].uri == "deep/3.jsonl:1"


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    write_line(tmp_path / "a[1].jsonl", "right")
    write_line(tmp_path / "a1.jsonl", "wrong")

    assert ids(tmp_path / "a[1].jsonl") == ["right"]


def test_links_to_files_are_read_once_and_links_to_folders_not_at_all(tmp_path):
    write_line(tmp_path / "blobs" / "0123", "1")
    write_line(tmp_path / "other" / "b.jsonl", "2")
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl").symlink_to("../blobs/0123")
    (data / "b.jsonl").symlink_to("../blobs/0123")
    (data / "other").symlink_to("../other")
    (data / "loop").symlink_to(".")

    assert ids(data) == ["1"]


def test_nothing_to_read_is_refused_with_what_would_do(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"PK")

    for path in (tmp_path, tmp_path / "*.jsonl", tmp_path / "a.xlsx"):
        with pytest.raises(SourceError) as raised:
            source_of(path).splits()
        assert str(path) in str(raised.value)
        assert ".parquet" in raised.value.hint
    with pytest.raises(SourceError, match="nowhere"):
        source_of(tmp_path / "nowhere.jsonl").splits()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_known_by_its_first_bytes(tmp_path, name, packed):
    (tmp_path / name).write_bytes(gzip.compress(LINES) if packed else LINES)

    assert ids(tmp_path) == ["0", "1", "2"]


def test_members_of_gzip_are_all_read(tmp_path):
    # Cut inside a line, and with an empty member between.
    content = gzip.compress(LINES[:5]) + gzip.compress(b"") + gzip.compress(LINES[5:])
    (tmp_path / "rows.jsonl.gz").write_bytes(content + b"\0" * 512)

    assert ids(tmp_path) == ["0", "1", "2"]


def test_a_marked_encoding_survives_the_smallest_members(tmp_path):
    content = ("\ufeff" + LINES.decode()).encode("utf-16-le")
    members = [gzip.compress(content[index : index + 1]) for index in range(len(content))]
    (tmp_path / "rows.jsonl.gz").write_bytes(b"".join(members))

    assert ids(tmp_path) == ["0", "1", "2"]


def test_rows_before_the_cut_of_gzip_are_read_and_one_error_follows(tmp_path):
    packed = gzip.compress(LINES)
    (tmp_path / "a.jsonl.gz").write_bytes(packed[:-6])
    (tmp_path / "b.jsonl").write_bytes(LINES.replace(b'"id":"', b'"id":"b'))

    rows = read(source_of(tmp_path))

    assert [row.doc_id for row in rows] == ["0", "1", "2", "", "b0", "b1", "b2"]
    assert (rows[3].error_code, rows[3].uri) == ("truncated", "a.jsonl.gz")
    assert "a.jsonl.gz" in rows[3].error_message


def test_a_line_that_the_cut_of_gzip_divides_is_not_delivered(tmp_path):
    lines = b"".join(b'{"id":"%d","text":"%d"}\n' % (n, n * 7919**3) for n in range(50_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,text\n1,x\n")[:-9])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines)[:100_000])

    _, *rows, last = read(source_of(tmp_path / "b.jsonl.gz"))

    assert len(rows) > 1000
    assert {row.error_code for row in rows} == {None}
    assert last.error_code == "truncated"
    assert [row.error_code for row in read(source_of(tmp_path / "a.csv.gz"))][-1] == "truncated"


def test_something_after_gzip_is_reported(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(LINES) + b"junk")

    rows = read(source_of(tmp_path))

    assert [row.error_code for row in rows] == [None, None, None, "damaged"]


def test_an_unreadable_file_is_one_error_and_the_others_are_read(tmp_path):
    write_line(tmp_path / "a.jsonl", "1")
    write_line(tmp_path / "b.jsonl", "2")

    def refuse(path):
        if path.endswith("a.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return open_binary(path)

    unread, row = read(source_of(tmp_path, open_file=refuse))

    assert (unread.doc_id, unread.error_code, unread.uri) == ("", "unreadable", "a.jsonl")
    assert unread.error_message.startswith("a.jsonl cannot be read: Permission denied; make it")
    assert row.doc_id == "2"


def test_a_file_that_is_gone_fails_the_split(tmp_path):
    write_line(tmp_path / "a.jsonl", "1")
    source = source_of(tmp_path)
    (split,) = source.splits()
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match="not visible from this machine"):
        list(source.read(split))


def test_a_copy_on_another_machine_reads_the_same_splits(tmp_path, monkeypatch):
    write_line(tmp_path / "a.jsonl", "1")
    monkeypatch.chdir(tmp_path)
    source = source_of("a.jsonl")
    (split,) = source.splits()
    monkeypatch.chdir("/")

    for copy in (pickle.loads(pickle.dumps(source)), source_of("a.jsonl")):
        (block,) = copy.read(split)
        assert [row.doc_id for row in documents_of(block)] == ["1"]


def test_a_missing_column_is_refused_with_the_columns_there_are(tmp_path):
    (tmp_path / "a.csv").write_bytes("\u200bid,text\n1,x\n".encode())
    pq.write_table(pa.table({"key": ["1"], "text": ["x"]}), tmp_path / "b.parquet")

    with pytest.raises(SourceError, match=r"a\.csv.*'id'.*'\\u200bid', 'text'"):
        read(source_of(tmp_path / "a.csv"))
    with pytest.raises(SourceError, match=r"b\.parquet.*'id'.*'key', 'text'"):
        read(source_of(tmp_path / "b.parquet"))
    with pytest.raises(SourceError, match="'topic'"):
        read(source_of(tmp_path / "b.parquet", id_column="key", metadata_columns=("topic",)))
