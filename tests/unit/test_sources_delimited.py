import json
import random
import string

import pytest
from pydantic import ValidationError

from embedmill.document import documents_of
from embedmill.errors import SourceError
from embedmill.settings import TableSourceSettings
from embedmill.sources.tables import TableSource


def read(tmp_path, content, name="rows.csv", **settings):
    path = tmp_path / name
    path.write_bytes(content)
    source = TableSource(TableSourceSettings(kind="table", path=str(path), **settings))
    return [
        row
        for split in source.splits()
        for block in source.read(split)
        for row in documents_of(block)
    ]


def test_every_value_is_the_text_that_stands_there(tmp_path):
    content = b"id,text\nNA,North America\n007,null\n1e3,x\n,blank id\n12,\n True ,1.0\n"

    rows = read(tmp_path, content)

    assert [(row.doc_id, row.content, row.error_code) for row in rows] == [
        ("NA", b"North America", None),
        ("007", b"null", None),
        ("1e3", b"x", None),
        ("", None, "missing-id"),
        ("12", b"", None),
        (" True ", b"1.0", None),
    ]
    assert rows[3].uri == "rows.csv:5"


@pytest.mark.parametrize(
    "content",
    [
        "id,text\r\n1,h\u00e9llo\r\n".encode("utf-16"),
        "id,text\n1,h\u00e9llo\n".encode("utf-8-sig"),
        '"id","text"\n"1","h\u00e9llo"\n'.encode("utf-8-sig"),
        "id,text\n1,h\u00e9llo".encode(),
    ],
)
def test_exports_of_spreadsheets_are_read(tmp_path, content):
    (row,) = read(tmp_path, content)

    assert (row.doc_id, row.content.decode()) == ("1", "h\u00e9llo")


def test_utf16_without_a_mark_asks_for_the_encoding(tmp_path):
    with pytest.raises(SourceError) as raised:
        read(tmp_path, "id,text\r\n1,x\r\n".encode("utf-16-le"))

    assert "encoding: utf-16-le" in raised.value.hint


def test_line_ends_and_quotes_within_quotes_belong_to_the_text(tmp_path):
    content = 'id,text\r\n1,"a\r\nb ""c"", d\u2028\x85"\r\n\r\n2,x\r\n'.encode()

    first, second = read(tmp_path, content)

    assert first.content.decode() == 'a\r\nb "c", d\u2028\x85'
    assert (first.uri, second.uri) == ("rows.csv:2", "rows.csv:5")


def test_tabs_separate_tsv(tmp_path):
    (row,) = read(tmp_path, b"id\ttext\n1\ta,b\n", name="rows.tsv")

    assert row.content == b"a,b"


@pytest.mark.parametrize("delimiter", [";", "|", "\t", "\\t"])
def test_csv_may_be_separated_by_something_else(tmp_path, delimiter):
    it = "\t" if delimiter == "\\t" else delimiter
    content = f'id{it}text{it}n\r\n1{it}"a{it}b, ""c"""{it}2\r\n'

    (row,) = read(tmp_path, content.encode(), delimiter=delimiter, metadata_columns=("n",))

    assert (row.doc_id, row.content.decode()) == ("1", f'a{it}b, "c"')
    assert row.metadata == '{"n":"2"}'


def test_the_delimiter_of_csv_is_not_that_of_tsv(tmp_path):
    (row,) = read(tmp_path, b"id\ttext\n1\ta;b\n", name="rows.tsv", delimiter=";")

    assert row.content == b"a;b"


@pytest.mark.parametrize("text", ["", ";;", '"', "\n", "tab", "\\n"])
def test_a_delimiter_is_one_character(text):
    with pytest.raises(ValidationError, match="it takes one character"):
        TableSourceSettings(kind="table", path="rows.csv", delimiter=text)


@pytest.mark.parametrize(
    ("name", "content", "written"),
    [
        ("rows.csv", "\nid;text\n1;x\n", '";"'),
        ("rows.csv", '"id";"text"\n"1";"x"\n', '";"'),
        ("rows.csv", "id\ttext\n1\tx, y\n", r'"\t"'),
        ("rows.csv", "no|id|text\n1|2|x\n", '"|"'),
        ("rows.tsv", "id,text\n1,x\n", '","'),
    ],
)
def test_columns_that_something_else_separates_are_refused_by_its_name(
    tmp_path, name, content, written
):
    with pytest.raises(SourceError, match="the columns are separated by") as raised:
        read(tmp_path, content.encode(), name=name)

    assert f"set `source.delimiter: {written}`" in raised.value.hint


def test_a_name_that_stands_twice_matters_only_if_it_is_used(tmp_path):
    content = b"id,text,x,x\n1,a,b,c\n"

    assert read(tmp_path, content)[0].content == b"a"
    with pytest.raises(SourceError, match="2 columns are called 'x'"):
        read(tmp_path, content, metadata_columns=("x",))


def test_semicolons_are_pointed_out(tmp_path):
    with pytest.raises(SourceError) as raised:
        read(tmp_path, b"nr;text\n1;x\n")

    assert "source.delimiter" in raised.value.hint


def test_a_record_of_another_width_is_an_error(tmp_path):
    content = b"id,text\n1,too, many\n2\n3,x,,\n4,x\n"

    rows = read(tmp_path, content)

    assert [(row.doc_id, row.error_code) for row in rows] == [
        ("1", "columns"),
        ("", "columns"),
        ("3", None),
        ("4", None),
    ]


def test_broken_quotes_are_an_error_and_the_next_line_goes_on(tmp_path):
    rows = read(tmp_path, b'id,text\n1,"a "b" c"\n2,x\n3,"never closed\n4,x\n')

    assert [(row.doc_id, row.error_code, row.uri) for row in rows] == [
        ("", "csv", "rows.csv:2"),
        ("2", None, "rows.csv:3"),
        ("", "csv", "rows.csv:4"),
    ]
    assert "lines 4 to 5" in rows[2].error_message


def test_bytes_that_are_not_utf8_harm_only_their_row(tmp_path):
    rows = read(tmp_path, b"id,text,other\n1,caf\xe9,x\n2,x,\xe9\n3,x,x\n")

    assert [(row.doc_id, row.error_code) for row in rows] == [
        ("1", "encoding"),
        ("2", None),
        ("3", None),
    ]


def test_metadata_is_text(tmp_path):
    (row,) = read(tmp_path, b"id,text,year,note\n1,x,2024,\n", metadata_columns=("year", "note"))

    assert json.loads(row.metadata) == {"year": "2024", "note": ""}


@pytest.mark.parametrize("line_end", ["", "\n"])
def test_a_record_over_the_limit_is_an_error_however_long_and_its_lines_are_no_records(
    tmp_path, line_end
):
    long = ("fake,row" + '""' + line_end) * 500
    content = f'id,text\n1,"{long}"\n2,"{long}",\n3,"a\nb"\n'.encode()

    rows = read(tmp_path, content, max_document_bytes=100)

    good = [(row.doc_id, row.content) for row in rows if row.error_code is None]
    assert good == [("3", b"a\nb")]
    assert [row.error_code for row in rows[:2]] == ["too-large", "too-large"]


def test_whatever_a_long_record_holds_the_rows_around_it_are_read(tmp_path):
    choice = random.Random(7)
    for _ in range(200):
        texts = [
            "".join(choice.choices(string.ascii_letters + ',\n\r" ', k=choice.randrange(1200)))
            for _ in range(4)
        ]
        records = [
            f'{number},"{text.replace(chr(34), chr(34) * 2)}"' for number, text in enumerate(texts)
        ]
        content = "\n".join(["id,text", *records]).encode()

        rows = read(tmp_path, content, max_document_bytes=100)

        assert len(rows) == len(texts)
        for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
            if len(text) <= 98:
                assert (row.doc_id, row.content) == (str(number), text.encode())
            else:
                assert row.error_code == "too-large"
