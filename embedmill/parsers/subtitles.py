"""Subtitles, WebVTT and SubRip: what is said, without times, marks and comments."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.parsers.decoding import decode
from embedmill.parsers.text import decoding_warnings

# Part of the chunking recipe: raise it when the same bytes come out as another text.
VERSION = 1

_LINE_END = re.compile(r"\r\n?|\n")
_TIMES = re.compile(r"\s*(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}\s*-->")
# Blocks of WebVTT that nobody says.
_UNSAID = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|$)")
_HEADER = re.compile(r"WEBVTT(?:[ \t].*)?$")
# <v Ann>, <00:01.000>, </i>, broken ones too; "a < b" is none.
_MARK = re.compile(r"<[/\\\w.][^<>]*>|\{\\[^{}]*\}")
# One that nothing closes goes up to the words that it was put before.
_OPEN_MARK = re.compile(r"<(?:[bciuv]|lang|ruby|rt)(?:\.[\w.-]+)?[ \t]+")


def parse_subtitles(content: bytes, fallback: str | None) -> ParsedDocument:
    """The words of all cues in their order, a line for each of theirs.

    A line that repeats the one before it, as rolling captions do, stands once.

    Raises:
        PermanentError: as :func:`embedmill.parsers.decoding.decode`; or there are words, and no
            times (``subtitles``).
    """
    decoded = decode(content, fallback=fallback)
    blocks = list(_blocks(decoded.text))
    if blocks and not any(_TIMES.match(line) for block in blocks for line in block):
        raise PermanentError("no subtitles: no cue has times", code="subtitles")
    said: list[str] = []
    for line in (line for block in blocks for line in _words(block)):
        if not said or line != said[-1]:
            said.append(line)
    return ParsedDocument(
        "\n".join(said),
        metadata=decoded.metadata,
        warnings=decoding_warnings(decoded, fallback),
    )


def _blocks(text: str) -> Iterator[list[str]]:
    """Lines between blank ones, without comments, styles and the header of WebVTT."""
    block: list[str] = []
    for line in [*_LINE_END.split(text), ""]:
        if line.strip():
            block.append(line)
        elif block:
            # Some begin with their first cue at once.
            header = _HEADER.match(block[0]) is not None
            if header and any(map(_TIMES.match, block)):
                yield block[1:]
            elif not header and not _UNSAID.match(block[0]):
                yield block
            block = []


def _words(block: list[str]) -> Iterator[str]:
    # A cue may have a name, or its number, before its times.
    at = next((at for at, line in enumerate(block[:2]) if _TIMES.match(line)), -1)
    for line in block[at + 1 :]:
        plain = html.unescape(_OPEN_MARK.sub("", _MARK.sub("", line))).strip()
        if plain:
            yield plain
