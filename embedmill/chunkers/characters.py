"""Borders that leave a reader's character (a grapheme cluster) whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import regex

from embedmill.errors import PermanentError

_CHARACTER = regex.compile(r"\X")
# Below these no character joins its neighbours: combining marks begin at U+0300, and nothing of
# ASCII extends what stands before it but the line feed of a CRLF.
_FIRST_MARK = "\u0300"
_FIRST_NOT_ASCII = "\x80"

Span = tuple[int, int]


def require_unicode(text: str) -> None:
    """Refuse a text that no tokenizer and no store takes.

    Raises:
        PermanentError: it has half of a surrogate pair; the message says where.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PermanentError(
            f"the text is no Unicode: half of a surrogate pair at character {error.start}",
            code="encoding",
        ) from error


def whole_characters(
    text: str, spans: Iterable[Span], may_cut: Callable[[str], bool]
) -> list[Span]:
    """Move borders that stand inside a character to its start.

    Args:
        text: that the spans lie in; it begins with a whole character.
        spans: in order; starts and ends never go back.
        may_cut: whether a character is to be left cut, since it alone exceeds the limit.

    Returns:
        The spans without those that became empty, blank or part of the span before.
    """
    kept: list[Span] = []
    origin = last_end = 0
    for begin, finish in spans:
        start = _border(text, origin, begin, may_cut)
        end = _border(text, start, finish, may_cut)
        origin = start
        if end > last_end and text[start:end].strip():
            kept.append((start, end))
            last_end = end
    return kept


def spans_by_characters(text: str, fits: Callable[[str], bool]) -> list[Span]:
    """Cut at any character, and inside one only where it alone does not fit.

    The last resort: it knows neither words nor sentences, and asks once for each character.
    """
    spans: list[Span] = []
    start = end = 0
    for part_end in _part_ends(text, fits):
        if end > start and not fits(text[start:part_end].strip()):
            spans.append((start, end))
            start = end
        end = part_end
    spans.append((start, end))
    return [_stripped(text, span) for span in spans if text[slice(*span)].strip()]


def _part_ends(text: str, fits: Callable[[str], bool]) -> Iterator[int]:
    for character in _CHARACTER.finditer(text):
        if not fits(character.group()):
            yield from range(character.start() + 1, character.end())
        yield character.end()


def _stripped(text: str, span: Span) -> Span:
    start, end = span
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())


def _border(text: str, origin: int, border: int, may_cut: Callable[[str], bool]) -> int:
    """``border``, or the start of the character around it; ``origin`` is an earlier border."""
    if border <= origin or border >= len(text):
        return border
    before, after = text[border - 1], text[border]
    if before < _FIRST_MARK and after < _FIRST_NOT_ASCII:
        return border - 1 if before == "\r" and after == "\n" else border
    for character in _CHARACTER.finditer(text, origin):
        if character.end() == border:
            return border
        if character.end() > border:
            # What is left of it may be blank and trimmed; no later span would take it up.
            if text[border : character.end()].isspace():
                return character.end()
            return border if may_cut(character.group()) else character.start()
    return border
