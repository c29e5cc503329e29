import json
import logging

import pytest

from embedmill.document import documents_of
from embedmill.errors import SourceError
from embedmill.settings import TableSourceSettings
from embedmill.source import BLOCK_ROWS
from embedmill.sources.tables import TableSource


def read(path, **settings):
    source = TableSource(TableSourceSettings(kind="table", path=str(path), **settings))
    return [
        row
        for split in source.splits()
        for block in source.read(split)
        for row in documents_of(block)
    ]


def read_lines(tmp_path, content, **settings):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    return read(path, **settings)


def test_each_line_is_a_document(tmp_path):
    content = b'{"id":"a","text":"one"}\r\n\n  \n{"id":"b","text":"two"}'

    rows = read_lines(tmp_path, content)

    assert [(row.doc_id, row.content, row.uri) for row in rows] == [
        ("a", b"one", "rows.jsonl:1"),
        ("b", b"two", "rows.jsonl:4"),
    ]
    assert rows[0].media_type == "text/plain"
    assert rows[0].metadata == "{}"


def test_only_a_line_feed_ends_a_record(tmp_path):
    text = "one\u2028two\u2029three\x85four\x0bfive\x0csix"
    escaped = json.dumps({"id": "a", "text": text}).encode()
    raw = json.dumps({"id": "b", "text": "one\u2028two\x85three"}, ensure_ascii=False).encode()

    first, second, third = read_lines(tmp_path, escaped + b"\n" + raw + b"\nbroken")

    assert first.content.decode() == text
    assert second.content.decode() == "one\u2028two\x85three"
    assert third.uri == "rows.jsonl:3"


def test_a_line_of_many_megabytes_is_read_whole(tmp_path):
    text = "w " * (3 * 2**20)
    lines = [{"id": str(number), "text": text if number else "x"} for number in range(3)]
    content = b"\n".join(json.dumps(line).encode() for line in lines)

    rows = read_lines(tmp_path, content)

    assert [len(row.content) for row in rows] == [1, len(text), len(text)]


def test_a_row_over_the_limit_is_an_error_and_the_others_go_on(tmp_path):
    long = [{"id": "b", "text": "x" * 101}, {"id": "c", "text": "x" * 1000}]
    lines = [{"id": "a", "text": "x" * 100}, *long, {"id": "d", "text": "x"}]
    content = b"\n".join(json.dumps(line).encode() for line in lines)

    rows = read_lines(tmp_path, content, max_document_bytes=102)

    assert [(row.doc_id, row.error_code) for row in rows] == [
        ("a", None),
        ("b", "too-large"),
        ("", "too-large"),
        ("d", None),
    ]
    assert "103 bytes, the limit is 102" in rows[1].error_message
    assert "1023 bytes" in rows[2].error_message


@pytest.mark.parametrize(
    ("value", "doc_id"),
    [
        ('"NA"', "NA"),
        ('"007"', "007"),
        ('" a "', " a "),
        ("7", "7"),
        ("9007199254740993", "9007199254740993"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ],
)
def test_ids_are_exact(tmp_path, value, doc_id):
    (row,) = read_lines(tmp_path, b'{"id":%b,"text":"x"}' % value.encode())

    assert (row.doc_id, row.error_code) == (doc_id, None)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("null", "bad-id"),
        ("1.0", "bad-id"),
        ("1e400", "bad-id"),
        ("true", "bad-id"),
        ("[1]", "bad-id"),
        ('{"a":1}', "bad-id"),
        (r'"\ud800"', "bad-id"),
        ('""', "missing-id"),
    ],
)
def test_a_value_that_is_no_id_is_an_error(tmp_path, value, code):
    (row,) = read_lines(tmp_path, b'{"id":%b,"text":"x"}' % value.encode())

    assert (row.doc_id, row.content, row.error_code) == ("", None, code)


def test_bytes_of_another_encoding_are_told_from_half_a_pair(tmp_path):
    content = b'{"id":"a","text":"caf\xe9"}\n{"id":"b","text":"\\udfff"}'
    byte, half = read_lines(tmp_path, content)

    assert "byte 0xe9 at character 3" in byte.error_message
    assert "set `source.encoding`" in byte.error_message
    assert "U+DFFF at character 0; mend the row" in half.error_message


def test_a_row_without_id_or_text_tells_what_it_has(tmp_path):
    no_id, no_text = read_lines(tmp_path, b'{"sku":1,"name":"n"}\n{"id":"a","name":"n"}')

    assert (no_id.doc_id, no_id.error_code) == ("", "missing-id")
    assert "'sku', 'name'" in no_id.error_message
    assert (no_text.doc_id, no_text.error_code) == ("a", "missing-text")
    assert "'id', 'name'" in no_text.error_message


def test_text_columns_are_joined_and_empty_ones_left_out(tmp_path):
    content = b"""{"id":"a","title":"T","text":"x"}
{"id":"b","title":null,"text":"x"}
{"id":"c","text":"x"}
{"id":"d","title":"","text":null}
{"id":"e","title":3,"text":2.5}
{"id":"f","title":["no"],"text":"x"}
"""
    rows = read_lines(tmp_path, content, text_columns=("title", "text"), text_separator=" - ")

    assert [row.content for row in rows] == [b"T - x", b"x", b"x", b"", b"3 - 2.5", None]
    assert (rows[5].doc_id, rows[5].error_code) == ("f", "bad-text")


def test_a_malformed_line_is_an_error_with_its_place(tmp_path):
    content = b'{"id":"a","text":"x"}\n{"id":"b" "text":"x"}\n[1]\n{"id":"c","text":"x"}\n'

    rows = read_lines(tmp_path, content)

    assert [row.error_code for row in rows] == [None, "json", "json", None]
    assert rows[1].uri == "rows.jsonl:2"
    assert "column 11" in rows[1].error_message


def test_nesting_of_any_depth_harms_only_its_row(tmp_path):
    deep = b"[" * 100_000 + b"]" * 100_000
    nested = b"[" * 900 + b"]" * 900
    content = b'{"id":"a","text":%b}\n{"id":"b","text":"x","m":%b}\n{"id":"c","text":"x"}' % (
        deep,
        nested,
    )

    rows = read_lines(tmp_path, content, metadata_columns=("m",))

    assert rows[0].error_code == "json"
    assert rows[1].error_code in {"json", "metadata"}
    assert (rows[2].doc_id, rows[2].error_code) == ("c", None)


def test_bytes_that_are_not_utf8_harm_only_the_column_they_stand_in(tmp_path):
    content = b'{"id":"a","text":"caf\xe9"}\n{"id":"b","text":"x","other":"\xe9"}\n'

    bad, good = read_lines(tmp_path, content)

    assert (bad.doc_id, bad.error_code) == ("a", "encoding")
    assert "byte 0xe9 at character 3" in bad.error_message
    assert "source.encoding" in bad.error_message
    assert (good.doc_id, good.content) == ("b", b"x")


def test_chosen_metadata_is_kept_with_its_types(tmp_path):
    content = (
        b'{"id":"a","text":"x","z":[1,{"b":2,"a":null}],"n":9223372036854775807,'
        b'"u":9223372036854775808,"big":-123456789012345678901,"f":0.5,"nan":NaN,"inf":-Infinity,'
        b'"deep":[123456789012345678901],"e":1e30,"left":"out"}'
    )
    names = ("z", "n", "u", "big", "f", "nan", "inf", "deep", "e", "absent")

    (row,) = read_lines(tmp_path, content, metadata_columns=names)

    assert json.loads(row.metadata) == {
        "z": [1, {"a": None, "b": 2}],
        "n": 9223372036854775807,
        "u": "9223372036854775808",
        "big": "-123456789012345678901",
        "f": 0.5,
        "nan": None,
        "inf": None,
        "deep": ["123456789012345678901"],
        "e": 1e30,
    }
    assert row.metadata.startswith('{"big":')


def test_a_column_that_no_row_has_is_reported(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        read_lines(tmp_path, b'{"id":"a","text":"x"}', metadata_columns=("catgory",))

    assert "'catgory'" in caplog.text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path, encoding):
    (row,) = read_lines(tmp_path, '{"id":"é","text":"\U0001f600"}\n'.encode(encoding))

    assert (row.doc_id, row.content.decode()) == ("é", "\U0001f600")


def test_utf16_without_a_mark_asks_for_the_encoding(tmp_path):
    content = '{"id":"a","text":"é"}\n'.encode("utf-16-be")

    with pytest.raises(SourceError, match=r"rows\.jsonl") as raised:
        read_lines(tmp_path, content)

    assert "encoding: utf-16-be" in raised.value.hint
    assert read_lines(tmp_path, content, encoding="utf-16-be")[0].content.decode() == "é"


def test_a_named_encoding_is_used_and_what_it_does_not_know_is_an_error(tmp_path):
    content = b'{"id":"a","text":"caf\xe9 \x97"}\n{"id":"b","text":"\x81"}\n'

    good, bad = read_lines(tmp_path, content, encoding="windows-1252")

    assert good.content.decode() == "café \u2014"
    assert (bad.doc_id, bad.error_code) == ("b", "encoding")


def test_rows_before_a_cut_character_are_read(tmp_path):
    content = '{"id":"a","text":"x"}\n{"id":"b"'.encode("utf-16")[:-1]

    good, bad = read_lines(tmp_path, content)

    assert good.doc_id == "a"
    assert (bad.doc_id, bad.error_code, bad.uri) == ("", "encoding", "rows.jsonl")


def test_html_in_a_row_is_utf8_whatever_the_page_says(tmp_path):
    (row,) = read_lines(tmp_path, b'{"id":"a","text":"<p>x"}', media_type="text/html")

    assert row.media_type == "text/html; charset=utf-8"


def test_a_block_has_only_so_many_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "text": "b"}\n' * 9000)
    source = TableSource(TableSourceSettings(kind="table", path=str(path)))
    (split,) = source.splits()
    sizes = [block.num_rows for block in source.read(split)]
    assert sum(sizes) == 9000
    assert max(sizes) == BLOCK_ROWS


def test_blocks_stay_small(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = [{"id": f"é{number}", "text": "x" * 5000, "m": "ü" * 5000} for number in range(2500)]
    path.write_text("\n".join(map(json.dumps, lines)))
    settings = TableSourceSettings(kind="table", path=str(path), metadata_columns=("m",))

    source = TableSource(settings)
    (split,) = source.splits()
    blocks = list(source.read(split))

    assert sum(block.num_rows for block in blocks) == 2500
    assert max(block.nbytes for block in blocks) <= 8 * 2**20
