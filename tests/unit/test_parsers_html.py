import pytest

from embedmill.errors import PermanentError
from embedmill.parsers.by_media_type import MediaTypeParser


def parse(page, media_type="text/html"):
    content = page.encode() if isinstance(page, str) else page
    return MediaTypeParser(None).parse(content, media_type)


def text_of(page):
    return parse(page).text


def test_every_visible_text_stands_once_and_in_order():
    page = (
        "<body>loose<p>first<br>second</p><table><thead><tr><th>Head</th></tr></thead>"
        "<tr><td><b>WARNING</b>: stay out<br/>after</td></tr></table><del><p>struck</p></del>"
        "tail &amp;lt; &#x1F600; a&nbsp;b<style>.s{}</style><script>bad()</script>"
        "<noscript>no</noscript><template><p>t</p></template><!-- c --></body>"
    )

    assert text_of(page) == (
        "loose\n\nfirst\nsecond\n\nHead\n\nWARNING: stay out\nafter\n\nstruck\n\n"
        "tail &lt; \U0001f600 a\u00a0b"
    )


def test_headings_become_markdown_headings_on_one_line():
    page = "<h1>The <i>big</i>\n<br>one</h1>text<h3>Sub</h3><h2> </h2><p>more"

    parsed = parse(page)

    assert parsed.text == "# The big one\n\ntext\n\n### Sub\n\nmore"
    assert parsed.format == "markdown"


def test_an_unclosed_heading_ends_where_the_next_block_starts():
    assert text_of("<h1>Title<p>one<p>two") == "# Title\n\none\n\ntwo"
    assert text_of("<h2><div>Title</div></h2><p>one") == "## Title\n\none"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p># no heading</p>", "\\# no heading"),
        ("<p>###</p>", "\\###"),
        ("<p>#hashtag</p>", "#hashtag"),
        ("<p>title<br>---</p>", "title\n\\---"),
        ("<p>title<br>==</p>", "title\n\\=="),
        ("<p>- # no</p>", "- \\# no"),
        ("<p>1. > # no</p>", "1. > \\# no"),
        ("<p>``` no fence</p>", "\\``` no fence"),
        ("<p>&lt;!-- no comment</p>", "\\<!-- no comment"),
        ("<p>- item</p>", "- item"),
        ("<p>a # b</p>", "a # b"),
        ("<p>1 &lt; 2</p>", "1 < 2"),
    ],
)
def test_ordinary_text_is_never_taken_for_structure(page, text):
    assert text_of(page) == text


def test_preformatted_text_keeps_its_spacing_in_a_fence():
    page = "<p>a</p><pre>\n  x  <b>y</b>\n# no heading<br>```\n</pre>b"

    assert text_of(page) == "a\n\n````\n  x  y\n# no heading\n```\n````\n\nb"


def test_preformatted_text_without_an_end_is_kept():
    assert text_of("a<pre>b  c") == "a\n\n```\nb  c\n```"


def test_cells_are_separated_and_rows_are_lines():
    page = (
        "<table><tr><th>A<th>B<tr><td>1</td><td></td><td>3</td></tr></table>"
        "<ul><li>x</li> <li>y</li></ul>"
    )

    assert text_of(page) == "A | B\n1 | | 3\n\nx\ny"


def test_inline_tags_do_not_divide_words_and_spaces_collapse():
    page = "<p>one<b>two</b>\n  <i> three </i><span>four</span>\r\n</p>  <p>five"

    assert text_of(page) == "onetwo three four\n\nfive"


def test_the_title_is_metadata_and_no_text():
    parsed = parse("<html><head><title> A &amp;\n B </title></head><body>x</body></html>")

    assert (parsed.text, parsed.metadata) == ("x", {"title": "A & B"})


def test_a_title_without_an_end_does_not_swallow_the_page():
    parsed = parse("<title>Name<body><p>all of the page</p></body>")

    assert "all of the page" in parsed.text
    assert parsed.metadata == {"title": "Name"}


def test_the_title_of_a_drawing_is_text():
    parsed = parse("<svg><title>arrow</title></svg><p>x</p>")

    assert parsed.metadata == {}
    assert "arrow" in parsed.text


@pytest.mark.parametrize(
    "declaration",
    [
        b'<meta charset="windows-1251">',
        b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        b'<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_the_declared_encoding_is_used_and_noted(declaration):
    parsed = parse(declaration + "<p>\u0438\u043c\u044f".encode("windows-1251"))

    assert parsed.text == "\u0438\u043c\u044f"
    assert parsed.metadata == {"encoding": "cp1251"}


def test_an_encoding_in_the_media_type_counts_before_the_declaration():
    page = '<meta charset="windows-1251"><p>\u0438\u043c\u044f'

    assert parse(page, "text/html; charset=utf-8").text == "\u0438\u043c\u044f"


@pytest.mark.parametrize("declared", ["utf-8", "UTF8", "utf-16", "no-such", "hex"])
def test_a_declaration_that_cannot_be_true_gives_way_to_utf8(declared):
    parsed = parse(f'<meta charset="{declared}"><p>\u0438')

    assert (parsed.text, parsed.metadata) == ("\u0438", {})


def test_latin1_means_what_browsers_take_it_for():
    assert parse(b"<meta charset=iso-8859-1><p>5 \x97 10").text == "5 \u2014 10"


def test_references_to_no_character_do_no_harm():
    assert text_of("a&#xD800;&#0;&#x110000;b").encode().decode().startswith("a")


def test_depth_and_breakage_do_no_harm():
    assert text_of("<div>" * 5000 + "deep") == "deep"
    assert text_of("<p>" * 3000 + "x</b></i><td>y") == "x | y"
    assert text_of("") == ""
    assert text_of("just text.html") == "just text.html"


def test_a_page_in_no_encoding_is_refused():
    with pytest.raises(PermanentError, match="offset 3"):
        parse(b"<p>\xff\xfe")
