import datetime as dt
import gzip
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedmill.document import documents_of
from embedmill.errors import SourceError
from embedmill.settings import TableSourceSettings
from embedmill.sources.tables import TableSource


def blocks(path, **settings):
    source = TableSource(TableSourceSettings(kind="table", path=str(path), **settings))
    return [block for split in source.splits() for block in source.read(split)]


def read(path, **settings):
    return [row for block in blocks(path, **settings) for row in documents_of(block)]


def read_table(tmp_path, columns, **settings):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    return read(path, **settings)


def metadata_of(tmp_path, column):
    columns = {"id": ["1"], "text": ["x"], "m": column}
    (row,) = read_table(tmp_path, columns, metadata_columns=("m",))
    return json.loads(row.metadata)["m"] if row.error_code is None else row.error_code


def test_each_row_is_a_document_numbered_from_one(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"id": [f"d{n}" for n in range(2500)], "text": ["x"] * 2500})
    pq.write_table(table, path, row_group_size=900)

    rows = read(path)

    assert [row.doc_id for row in rows] == [f"d{n}" for n in range(2500)]
    assert rows[-1].uri == "rows.parquet:2500"


@pytest.mark.parametrize(
    ("column", "doc_id"),
    [
        (pa.array(["007"]), "007"),
        (pa.array(["007"], pa.large_string()), "007"),
        (pa.array(["007"]).dictionary_encode(), "007"),
        (pa.array([b"007"]), "007"),
        (pa.array([9007199254740993]), "9007199254740993"),
        (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
    ],
)
def test_ids_are_exact_whatever_their_type(tmp_path, column, doc_id):
    (row,) = read_table(tmp_path, {"id": column, "text": ["x"]})

    assert row.doc_id == doc_id


def test_a_null_or_empty_id_is_an_error(tmp_path):
    rows = read_table(tmp_path, {"id": ["a", None, ""], "text": ["x", "x", "x"]})

    assert [row.error_code for row in rows] == [None, "bad-id", "missing-id"]


@pytest.mark.parametrize(
    "columns",
    [
        {"id": [1.0], "text": ["x"]},
        {"id": [True], "text": ["x"]},
        {"id": ["1"], "text": [["x"]]},
    ],
)
def test_a_column_of_a_type_that_cannot_do_is_refused(tmp_path, columns):
    with pytest.raises(SourceError, match="has the type"):
        read_table(tmp_path, columns)


def test_text_of_any_single_type_is_taken_and_null_is_empty(tmp_path):
    columns = {
        "id": ["1", "2"],
        "a": ["x", None],
        "b": [3, None],
        "c": [dt.date(2024, 1, 5), None],
        "d": pa.array([b"bytes", None]),
    }
    rows = read_table(tmp_path, columns, text_columns=("a", "b", "c", "d"), text_separator="|")

    assert [row.content for row in rows] == [b"x|3|2024-01-05|bytes", b""]


def test_text_that_is_not_utf8_harms_only_its_row(tmp_path):
    raw = pa.array([b"caf\xe9", b"x"]).buffers()
    text = pa.StringArray.from_buffers(2, raw[1], raw[2])

    bad, good = read_table(tmp_path, {"id": ["1", "2"], "text": text})

    assert (bad.doc_id, bad.error_code) == ("1", "encoding")
    assert (good.doc_id, good.content) == ("2", b"x")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array([None], pa.string()), None),
        (pa.array([3], pa.int8()), 3),
        (pa.array([2**63], pa.uint64()), "9223372036854775808"),
        (pa.array([float("nan")]), None),
        (pa.array([float("inf")]), None),
        (pa.array([Decimal("1.10")]), "1.10"),
        (pa.array([b"raw"]), "cmF3"),
        (pa.array([dt.date(2024, 1, 5)]), "2024-01-05"),
        (pa.array([10**18], pa.timestamp("ns")), "2001-09-09T01:46:40"),
        (pa.array([1_000_000_001], pa.timestamp("ns")), "1970-01-01T00:00:01"),
        (pa.array([0], pa.timestamp("s", "UTC")), "1970-01-01T00:00:00+00:00"),
        (pa.array([1500], pa.duration("ms")), 1.5),
        (pa.array([["a", None]]), ["a", None]),
        (pa.array([{"b": [1], "a": dt.date(2024, 1, 5)}]), {"a": "2024-01-05", "b": [1]}),
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), ["1970-01-01T00:00:00"]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), [["k", 1]]),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array([2**40], pa.timestamp("s")), "metadata"),
    ],
)
def test_metadata_becomes_json(tmp_path, column, value):
    assert metadata_of(tmp_path, column) == value


def test_names_with_dots_and_unused_duplicates_are_no_trouble(tmp_path):
    path = tmp_path / "rows.parquet"
    names = ["id", "a.b", "a", "x", "x"]
    pq.write_table(pa.Table.from_arrays([pa.array([name]) for name in names], names=names), path)

    (row,) = read(path, text_columns=("a", "a.b"), text_separator=" ")

    assert row.content == b"a a.b"
    with pytest.raises(SourceError, match="2 columns are called 'x'"):
        read(path, text_columns=("x",))


def test_large_rows_come_in_small_blocks(tmp_path):
    path = tmp_path / "rows.parquet"
    texts = [f"{number % 10}" * (3 * 2**20) for number in range(12)]
    pq.write_table(pa.table({"id": ["1"] * 12, "text": texts}), path)

    found = blocks(path)

    assert sum(block.num_rows for block in found) == 12
    assert found[0].num_rows == 1
    assert 4 * 2**20 < max(block.nbytes for block in found) <= 8 * 2**20


def test_gzip_around_parquet_is_unpacked(tmp_path):
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"id": ["1"], "text": ["x"]}), path)
    packed = gzip.compress(path.read_bytes())
    for name in ("a.parquet.gz", "b.parquet"):
        (tmp_path / name).write_bytes(packed)
        assert [row.doc_id for row in read(tmp_path / name)] == ["1"]
    (tmp_path / "c.parquet.gz").write_bytes(packed[:-20])
    assert [row.error_code for row in read(tmp_path / "c.parquet.gz")] == ["truncated"]


@pytest.mark.parametrize("content", [b"", b"id,text\n", b"PAR1 and no more PAR1"])
def test_what_is_no_parquet_is_one_error_and_the_others_are_read(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    pq.write_table(pa.table({"id": ["1"], "text": ["x"]}), tmp_path / "b.parquet")

    broken, row = read(tmp_path)

    assert (broken.doc_id, broken.error_code, broken.uri) == ("", "damaged", "a.parquet")
    assert broken.error_message.startswith("a.parquet is no readable Parquet file")
    assert (row.doc_id, row.error_code) == ("1", None)


def test_rows_before_a_damaged_page_are_read_and_one_error_follows(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"id": [f"{n}" for n in range(4000)], "text": [f"{n} x" for n in range(4000)]})
    pq.write_table(table, path, row_group_size=2000, compression="gzip")
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 200] = b"\xff" * 200
    path.write_bytes(content)

    rows = read(path)

    assert [row.error_code for row in rows] == [None] * 2000 + ["damaged"]
