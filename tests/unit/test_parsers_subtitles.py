import pytest

from embedmill.errors import PermanentError
from embedmill.parsers.by_media_type import MediaTypeParser
from embedmill.sources.files import media_type_of


def parsed(content, name="a.vtt", fallback=None):
    content = content if isinstance(content, bytes) else content.encode()
    return MediaTypeParser(fallback).parse(content, media_type_of(name))


def test_of_a_subtitle_file_only_what_is_said_is_left():
    text = parsed(
        "WEBVTT - a talk\nKind: captions\n\n"
        "NOTE written by hand\nfor the test\n\n"
        "STYLE\n::cue { color: red }\n\n"
        "intro\n00:00.000 --> 00:02.000 align:start\n<v.loud Ann>It&apos;s a <b>blue</b> tree!\n\n"
        "01:00:02.000 --> 01:00:04.000\nNo <00:03.000><c>way</c> &lt; &amp;amp;\n- two\n"
    ).text
    assert text == "It's a blue tree!\nNo way < &amp;\n- two"


def test_broken_marks_take_no_words_along():
    text = parsed(
        "WEBVTT\n\n00:00.000 --> 00:02.000\n<c It's a blue apple tree!\n\n"
        "00:02.000 --> 00:04.000\n<\\b>No way!\n\n"
        "00:04.000 --> 00:06.000\n<i>Hee!</b> Hee!\n\n"
        "00:06.000 --> 00:08.000\n<bad>That's awesome!</bad>\n\n"
        "00:08.000 --> 00:09.000\nif a < b and c > d\n"
    ).text
    assert text.splitlines() == [
        "It's a blue apple tree!",
        "No way!",
        "Hee! Hee!",
        "That's awesome!",
        "if a < b and c > d",
    ]


def test_subrip_has_numbers_commas_and_windows_line_ends():
    content = (
        b"\xef\xbb\xbf1\r\n00:00:01,000 --> 00:00:02,500\r\n{\\an8}<font color='red'>One</font>\r\n"
        b"\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n1984\r\nTwo\r\n"
    )
    assert parsed(content, "a.srt").text == "One\n1984\nTwo"


def test_a_line_of_rolling_captions_stands_once():
    cues = ["one", "one\ntwo", "two\nthree", "three\none"]
    blocks = [f"00:0{n}.000 --> 00:0{n}.500\n{cue}\n" for n, cue in enumerate(cues)]
    assert parsed("WEBVTT\n\n" + "\n".join(blocks)).text == "one\ntwo\nthree\none"


def test_a_header_may_be_followed_by_the_first_cue_at_once():
    assert parsed("WEBVTT\n00:00.000 --> 00:01.000\none\n").text == "one"


@pytest.mark.parametrize("content", ["", "WEBVTT\n", "WEBVTT\n\nNOTE nothing\n"])
def test_a_file_without_cues_has_no_text(content):
    assert parsed(content).text == ""


def test_what_has_no_times_is_no_subtitle_file():
    with pytest.raises(PermanentError, match="no cue has times") as error:
        parsed("just some text\n")
    assert error.value.code == "subtitles"


def test_another_encoding_is_decoded_as_text_is():
    content = "1\n00:00:01,000 --> 00:00:02,000\ncaf\xe9\n".encode("cp1252")
    with pytest.raises(PermanentError, match="offset"):
        parsed(content, "a.srt")
    document = parsed(content, "a.srt", "cp1252")
    assert document.text == "caf\xe9"
    assert document.metadata == {"encoding": "cp1252"}
