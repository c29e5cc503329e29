"""Jupyter notebooks: their cells as Markdown, without what running them has put out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.parsers.decoding import decode
from embedmill.parsers.text import decoding_warnings
from embedmill.plain_numbers import number_of

# Part of the chunking recipe: raise it when the same bytes come out as another text.
VERSION = 1

# Colab puts a picture that is pasted into a text cell there. A short one may be an example.
_INLINE_DATA = re.compile(r"(data:[\w.+-]+/[\w.+;=-]+?;base64,)[A-Za-z0-9+/=_-]{64,}")
_BACKTICKS = re.compile(r"`{3,}")
_NO_LANGUAGE = re.compile(r"[^\w+#.-]")
# It stands before every cell of code: of a name as long as the file the text would be its square.
_LANGUAGE_LENGTH = 40
# Not in documents: half of a pair, which no encoding has, and what marks binary files.
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


def parse_notebook(content: bytes, fallback: str | None) -> ParsedDocument:
    """Text of the cells in their order; of formats 2 to 4.

    Markdown stands as it is written, code in a fenced block with the notebook's language, a raw
    cell in one without. Outputs and attachments are left out, and so are pictures within the text,
    which a warning counts. A file of nothing but blanks has no text.

    Raises:
        PermanentError: as :func:`embedmill.parsers.decoding.decode`; or it is no notebook
            (``notebook``), the message says where.
    """
    decoded = decode(content, fallback=fallback)
    cells = list(_cells(_notebook(decoded.text))) if decoded.text.strip() else []
    text, pictures = _INLINE_DATA.subn(r"\1", "\n\n".join(cells))
    if found := _NO_CHARACTER.search(text):
        raise _problem(f"a cell has the character {found.group()!a}, which is none of a text")
    warnings = decoding_warnings(decoded, fallback)
    if pictures:
        warnings = (*warnings, f"{number_of(pictures, 'picture')} within cells left out")
    return ParsedDocument(text, format="markdown", metadata=decoded.metadata, warnings=warnings)


def _problem(reason: str) -> PermanentError:
    return PermanentError(f"no notebook: {reason}", code="notebook")


def _notebook(text: str) -> dict[str, Any]:
    try:
        # Strict readers of JSON refuse the NaN that plots put into outputs.
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _problem(f"not valid JSON: {error}") from error
    if not isinstance(notebook, dict):
        raise _problem("its JSON is no object")
    return notebook


def _cells(notebook: dict[str, Any]) -> Iterator[str]:
    language = _language(notebook)
    for number, cell in enumerate(_listed(notebook), 1):
        if not isinstance(cell, dict):
            raise _problem(f"cell {number} is no object")
        source = _source(cell, number)
        if source.strip():
            yield _as_markdown(cell, source, language)


def _listed(notebook: dict[str, Any]) -> Iterator[Any]:
    """Cells; up to format 3 they stand in worksheets."""
    sheets = notebook.get("worksheets") if "cells" not in notebook else [notebook]
    for sheet in sheets if isinstance(sheets, list) else [None]:
        cells = sheet.get("cells", []) if isinstance(sheet, dict) else None
        if not isinstance(cells, list):
            raise _problem("it has no list of cells")
        yield from cells


def _source(cell: dict[str, Any], number: int) -> str:
    """Text of a cell, or a list of its lines; of code, up to format 3, the ``input``."""
    source = cell.get("source", cell.get("input", ""))
    lines = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        raise _problem(f"the source of cell {number} is neither text nor a list of lines")
    return "".join(lines)


def _as_markdown(cell: dict[str, Any], source: str, language: str) -> str:
    match cell.get("cell_type"):
        case "markdown" | "html":
            return source
        case "heading":
            level = next((n for n in range(1, 7) if n == cell.get("level")), 1)
            return f"{'#' * level} {' '.join(source.split())}"
        case "code":
            own = cell.get("language")
            return _fenced(source, own if isinstance(own, str) else language)
        case _:
            return _fenced(source, "")


def _fenced(source: str, language: str) -> str:
    """A block whose fence is longer than any within it."""
    longest = max(map(len, _BACKTICKS.findall(source)), default=2)
    fence = "`" * (longest + 1)
    end = "" if source.endswith("\n") else "\n"
    named = _NO_LANGUAGE.sub("", language[:_LANGUAGE_LENGTH])
    return f"{fence}{named}\n{source}{end}{fence}"


def _language(notebook: dict[str, Any]) -> str:
    """Of the code, as far as the notebook says."""
    metadata = notebook.get("metadata")
    for part, key in (("language_info", "name"), ("kernelspec", "language")):
        about = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(about, dict) and isinstance(about.get(key), str):
            return str(about[key])
    return ""
