"""Notebooks of every format that is about: text and code are kept, what was put out is not."""

import json

import pytest

from embedmill.errors import PermanentError
from embedmill.parsers.by_media_type import MediaTypeParser
from embedmill.sources.files import media_type_of

PICTURE = "iVBORw0KGgo" * 400


def parse(notebook, fallback=None):
    content = notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode()
    return MediaTypeParser(fallback).parse(content, media_type_of("a/b.ipynb"))


def of_format_4(*cells, **metadata):
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def cell(kind, source, **more):
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def code(source, *outputs):
    return cell("code", source, execution_count=1, outputs=list(outputs))


def test_cells_become_markdown_and_outputs_are_left_out():
    shown = {"output_type": "display_data", "data": {"image/png": PICTURE, "text/plain": "<Fig>"}}
    said = {"output_type": "stream", "name": "stdout", "text": ["a long table\n"] * 1000}
    notebook = of_format_4(
        cell("markdown", ["# Mills\n", "\n", "How they **turn**."]),
        code("import mill\n\nmill.turn()", shown, said),
        cell("raw", "as it is"),
        cell("markdown", "![a](attachment:a.png)", attachments={"a.png": {"image/png": PICTURE}}),
        code(""),
        language_info={"name": "python", "version": "3.12"},
    )
    parsed = parse(notebook)
    assert parsed.format == "markdown"
    assert parsed.warnings == ()
    assert parsed.text == (
        "# Mills\n\nHow they **turn**.\n\n"
        "```python\nimport mill\n\nmill.turn()\n```\n\n"
        "```\nas it is\n```\n\n"
        "![a](attachment:a.png)"
    )


def test_format_3_has_worksheets_headings_and_inputs():
    notebook = {
        "metadata": {"name": "old"},
        "nbformat": 3,
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": ["Wind\n", "mills"]},
                    {
                        "cell_type": "code",
                        "language": "r",
                        "input": ["x <- 1\n", "x"],
                        "outputs": [{"output_type": "pyout", "png": PICTURE}],
                    },
                ]
            },
            {"cells": [{"cell_type": "markdown", "source": "of another sheet"}]},
            {"metadata": {}},
        ],
    }
    assert parse(notebook).text == ("## Wind mills\n\n```r\nx <- 1\nx\n```\n\nof another sheet")


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"language_info": {"name": "julia"}, "kernelspec": {"language": "R"}}, "julia"),
        ({"kernelspec": {"display_name": "C++17", "language": "C++17"}}, "C++17"),
        ({"kernelspec": {"language": "two words\n```"}}, "twowords"),
        ({"kernelspec": {"name": "python3"}}, ""),
        ({"language_info": {"name": "x" * 1_000}}, "x" * 40),
        ({"language_info": None}, ""),
    ],
)
def test_the_language_is_what_the_notebook_says(metadata, language):
    assert parse(of_format_4(code("x"), **metadata)).text == f"```{language}\nx\n```"


def test_code_with_a_fence_in_it_has_a_longer_one():
    source = "print('''\n````md\n''')\n"
    assert parse(of_format_4(code(source))).text == f"`````\n{source}`````"


def test_pictures_within_text_are_left_out_and_counted():
    pasted = f"before ![](data:image/png;base64,{PICTURE}==) after"
    parsed = parse(of_format_4(cell("markdown", pasted), cell("markdown", pasted)))
    assert parsed.text == "\n\n".join(["before ![](data:image/png;base64,) after"] * 2)
    assert parsed.warnings == ("2 pictures within cells left out",)
    short = "an example: data:text/plain;base64,aGk="
    assert parse(of_format_4(cell("markdown", short))).text == short


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_a_file_without_anything_has_no_text(content):
    assert parse(content).text == ""


def test_a_notebook_without_cells_has_no_text():
    assert parse(of_format_4()).text == ""
    assert parse({"worksheets": [], "nbformat": 3}).text == ""


def test_numbers_that_are_none_in_outputs_do_no_harm():
    content = json.dumps(of_format_4(code("1"), {"cell_type": "markdown", "x": float("nan")}))
    assert b"NaN" in content.encode()
    assert parse(content.encode()).text == "```\n1\n```"


@pytest.mark.parametrize(
    ("notebook", "said"),
    [
        (b'{"cells": [', "not valid JSON: Expecting value: line 1 column 12"),
        (b"<<<<<<< HEAD\n{}", "not valid JSON: Expecting value: line 1 column 1"),
        (b"[" * 100_000, "not valid JSON"),
        ([], "its JSON is no object"),
        ({"nbformat": 4}, "it has no list of cells"),
        ({"cells": {}}, "it has no list of cells"),
        ({"worksheets": [3]}, "it has no list of cells"),
        (of_format_4("text"), "cell 1 is no object"),
        (of_format_4(code("x"), cell("code", ["x", 3])), "the source of cell 2 is neither text"),
        (of_format_4(code("x"), cell("code", None)), "the source of cell 2 is neither text"),
        (of_format_4(cell("markdown", "half \ud83d")), "the character '\\ud83d'"),
        (of_format_4(cell("markdown", "bin\0ary")), "the character '\\x00'"),
    ],
)
def test_what_is_no_notebook_says_why(notebook, said):
    with pytest.raises(PermanentError) as caught:
        parse(notebook)
    assert caught.value.code == "notebook"
    assert str(caught.value).startswith("no notebook: ")
    assert said in str(caught.value)


def test_what_cannot_be_decoded_is_told_as_of_any_text():
    latin = json.dumps(of_format_4(cell("markdown", "Mühle")), ensure_ascii=False).encode("cp1252")
    with pytest.raises(PermanentError, match="not utf-8: byte 0xfc"):
        parse(latin)
    parsed = parse(latin, "cp1252")
    assert (parsed.text, parsed.metadata) == ("Mühle", {"encoding": "cp1252"})
    assert parsed.warnings == ("decoded as cp1252, the fallback encoding",)


def test_an_index_without_notebooks_keeps_its_recipe():
    assert "notebook" not in MediaTypeParser().fingerprint
