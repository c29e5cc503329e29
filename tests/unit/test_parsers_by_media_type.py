import pickle

import pytest

from embedmill.errors import PermanentError
from embedmill.parsers.by_media_type import MediaTypeParser


def parse(content, media_type="text/plain", fallback=None):
    return MediaTypeParser(fallback).parse(content, media_type)


@pytest.mark.parametrize(
    ("media_type", "text_format", "language"),
    [
        ("text/plain", "text", ""),
        ("text/x-rst", "text", ""),
        ("text/x-python", "code", "python"),
        ("text/markdown", "markdown", ""),
        ("Text/HTML; charset=utf-8", "markdown", ""),
    ],
)
def test_the_media_type_decides_the_format(media_type, text_format, language):
    parsed = parse(b"x = 1", media_type)

    assert (parsed.text, parsed.format, parsed.language) == ("x = 1", text_format, language)
    assert (parsed.metadata, parsed.warnings) == ({}, ())


def test_a_media_type_that_nothing_parses_is_refused():
    with pytest.raises(PermanentError, match="application/pdf") as raised:
        parse(b"%PDF", "application/pdf")
    assert raised.value.code == "media-type"


def test_line_ends_and_odd_characters_stay():
    text = "a\r\nb\rc\x0b\x0c\x85\u2028d\n\n"

    assert parse(text.encode()).text == text


@pytest.mark.parametrize(
    ("encoding", "metadata"),
    [
        ("utf-8-sig", {}),
        ("utf-16", {"encoding": "utf-16-le"}),
        ("utf-32", {"encoding": "utf-32-le"}),
    ],
)
def test_a_byte_order_mark_tells_the_encoding_and_is_no_text(encoding, metadata):
    parsed = parse("price \u2014 5".encode(encoding))

    assert parsed.text == "price \u2014 5"
    assert parsed.metadata == metadata


def test_what_is_not_utf8_is_refused_with_the_place():
    with pytest.raises(PermanentError, match="not utf-8: byte 0x97 at offset 8") as raised:
        parse(b"price 5 \x97 10 \xa9")
    assert raised.value.code == "encoding"
    assert "fallback_encoding" in raised.value.hint


def test_the_fallback_encoding_is_used_for_what_is_not_utf8_and_noted():
    legacy = parse(b"price 5 \x97 10 \xa9", fallback="windows-1252")
    modern = parse("caf\u00e9".encode(), fallback="windows-1252")

    assert legacy.text == "price 5 \u2014 10 \u00a9"
    assert legacy.metadata == {"encoding": "cp1252"}
    assert "cp1252" in legacy.warnings[0]
    assert (modern.text, modern.metadata, modern.warnings) == ("caf\u00e9", {}, ())


def test_a_fallback_that_does_not_fit_is_named_too():
    with pytest.raises(PermanentError, match=r"not utf-8: .*; not cp1252: byte 0x81 at offset 3"):
        parse(b"abc\x81", fallback="windows-1252")


def test_python_is_decoded_as_its_coding_line_says():
    source = "# coding: koi8-r\nname = '\u0438\u043c\u044f'\n"

    parsed = parse(source.encode("koi8-r"), "text/x-python")

    assert parsed.text == source
    assert parsed.metadata == {"encoding": "koi8-r"}


@pytest.mark.parametrize("line", ["# coding: no-such", "# coding: hex", "# -*- coding: ascii -*-"])
def test_a_coding_line_that_cannot_be_true_gives_way_to_utf8(line):
    source = f"{line}\nname = '\u00e9'\n"

    parsed = parse(source.encode(), "text/x-python")

    assert (parsed.text, parsed.metadata) == (source, {})


def test_binary_is_refused():
    for content in (b"\x89PNG\r\n\x1a\n\0\0\0", b"text\0text", "a\0b".encode("utf-16")):
        with pytest.raises(PermanentError) as raised:
            parse(content, fallback="latin-1")
        assert raised.value.code == "binary"


def test_utf16_without_a_mark_is_read_when_the_fallback_says_so():
    content = "caf\u00e9".encode("utf-16-le")

    assert parse(content, fallback="utf-16-le").text == "caf\u00e9"
    with pytest.raises(PermanentError, match="UTF-16") as raised:
        parse("cafe".encode("utf-16-le"))
    assert "utf-16-le" in raised.value.hint


def test_a_text_cut_in_the_middle_of_a_character_is_refused():
    with pytest.raises(PermanentError, match="utf-16-le: byte 0x62 at offset 4"):
        parse("ab".encode("utf-16")[:-1])


@pytest.mark.parametrize(
    ("content", "decides"),
    [
        (b"plain", False),
        ("caf\u00e9".encode(), False),
        (b"caf\xe9", True),
        ("cafe".encode("utf-16-le"), True),
        ("\u00e9\0".encode(), True),
        (b"", False),
    ],
)
def test_a_fallback_concerns_what_it_may_decide_and_no_recipe(content, decides):
    plain, legacy = MediaTypeParser(None), MediaTypeParser("windows-1252")

    assert plain.fingerprint == legacy.fingerprint
    assert plain.fallback_for(content) == ""
    assert legacy.fallback_for(content) == ("cp1252" if decides else "")
    assert pickle.loads(pickle.dumps(legacy)).fallback_for(b"\xe9") == "cp1252"


@pytest.mark.parametrize("content", [b"%PDF-1.4\n%%EOF", b"PK\x03\x04word/document.xml"])
def test_what_begins_like_a_pdf_or_an_office_file_is_no_text(content):
    with pytest.raises(PermanentError, match="convert it") as raised:
        parse(content, "text/plain")
    assert raised.value.code == "media-type"
