"""Markdown: the text as it stands, but for front matter, which becomes metadata."""

from __future__ import annotations

import re

import orjson
import yaml

from embedmill.parser import ParsedDocument
from embedmill.parsers.decoding import decode
from embedmill.parsers.text import decoding_warnings
from embedmill.sources.json_values import json_value

# Part of the chunking recipe: raise it when the same bytes come out as another text.
VERSION = 1

# Where an invalid block is kept, word for word.
RAW_FRONT_MATTER = "front_matter"

# Front matter is a page at most; what lies further apart are two rules. Also bounds the time that a
# hostile block can cost.
_LONGEST_BLOCK = 64 * 1024
_OPENING = re.compile(r"---[ \t]*\r?\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_FIRST_KEY = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[\w\"'][^\n:]*:(?:\s|\Z)")


def parse_markdown(content: bytes, fallback: str | None) -> ParsedDocument:
    """Decode, and take a leading block of YAML between ``---`` lines out as metadata.

    Lists and objects stay such, dates become ISO 8601 text. A block that starts like a mapping but
    is not valid YAML is left out of the text too; it is kept word for word under
    :data:`RAW_FRONT_MATTER`, with a warning that says where it is wrong. Anything else between two
    rules is text.

    Raises:
        PermanentError: as :func:`embedmill.parsers.decoding.decode`.
    """
    decoded = decode(content, fallback=fallback)
    found, warnings, body_start = _front_matter(decoded.text)
    return ParsedDocument(
        decoded.text[body_start:],
        format="markdown",
        metadata={**found, **decoded.metadata},
        warnings=(*decoding_warnings(decoded, fallback), *warnings),
    )


def _front_matter(text: str) -> tuple[dict[str, object], tuple[str, ...], int]:
    """Metadata, warnings, and where the body starts."""
    opening = _OPENING.match(text)
    closing = opening and _CLOSING.search(text, opening.end(), opening.end() + _LONGEST_BLOCK)
    if not opening or not closing:
        return {}, (), 0
    block = text[opening.end() : closing.start()]
    try:
        values = json_value(yaml.load(block, _FrontMatterLoader))  # noqa: S506 (a safe loader)
        # Half of a surrogate pair can be written in YAML, and hundreds of levels.
        orjson.dumps(values)
    except (yaml.YAMLError, ValueError, RecursionError, orjson.JSONEncodeError) as error:
        if not _FIRST_KEY.match(block):
            return {}, (), 0
        warning = f"front matter is not valid YAML, kept as {RAW_FRONT_MATTER!r}: {_place(error)}"
        return {RAW_FRONT_MATTER: block}, (warning,), closing.end()
    if values is None:
        return {}, (), closing.end()
    if not isinstance(values, dict):
        return {}, (), 0
    return values, (), closing.end()


def _place(error: Exception) -> str:
    """Line of the file and what is wrong there, on one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    # The block starts on the second line, marks count from 0.
    where = f"line {mark.line + 2}, column {mark.column + 1}: " if mark else ""
    return where + " ".join(str(problem).split())


class _FrontMatterLoader(yaml.SafeLoader):
    """Plain data only. Aliases are refused: a few of them unfold to any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call] # the stubs lack it
            raise yaml.composer.ComposerError(
                None, None, "aliases are not supported here", event.start_mark
            )
        return super().compose_node(parent, index)
