"""HTML: the text that a reader sees, with its headings, as Markdown."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from bs4 import BeautifulSoup, Tag
from bs4.element import CData, NavigableString, PageElement, PreformattedString

from embedmill.parser import ParsedDocument
from embedmill.parsers.decoding import decode
from embedmill.parsers.html_text import HtmlText
from embedmill.parsers.text import decoding_warnings

# HTML wants the declaration within the first 1,024 bytes; pages are less strict.
_SNIFFED = 4096
_DECLARED = re.compile(
    rb"<meta[^>]{0,512}?charset\s*=\s*[\"']?\s*([\w.:-]+)"
    rb"|<\?xml[^>]{0,256}?encoding\s*=\s*[\"']([\w.:-]+)",
    re.IGNORECASE,
)
# A declaration that was read as ASCII cannot be true of these; and the names of Latin-1 mean
# Windows-1252 to every browser. Both as https://encoding.spec.whatwg.org says.
_MEANT = {
    "utf-16": "utf-8",
    "utf-16le": "utf-8",
    "utf-16be": "utf-8",
    "iso-8859-1": "cp1252",
    "latin-1": "cp1252",
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "ascii": "cp1252",
}
_INVISIBLE = frozenset({"script", "style", "noscript", "template"})


def parse_html(content: bytes, fallback: str | None, charset: str | None = None) -> ParsedDocument:
    """The visible text in document order, block elements on lines of their own.

    Headings become Markdown headings, ``<pre>`` becomes a fenced block with its spacing, cells of a
    table row are separated by ``|``. Ordinary text that would read as a heading, a fence or markup
    in Markdown gets a backslash in front. Scripts, style sheets, ``<noscript>``, ``<template>`` and
    comments are left out; deleted text (``<del>``) is visible in a browser and stays. Character
    references are decoded once. ``<title>`` becomes the metadata ``title``.

    Args:
        content: the page.
        fallback: encoding of pages that are not UTF-8 and declare none.
        charset: encoding when it is known; what the page declares does not count then.

    Raises:
        PermanentError: as :func:`embedmill.parsers.decoding.decode`.
    """
    decoded = decode(content, declared=charset or _declared(content), fallback=fallback)
    soup = _soup(decoded.text)
    title = _title(soup)
    text = HtmlText()
    for element, is_end in _walk(soup, title):
        if isinstance(element, Tag):
            (text.end if is_end else text.start)(element.name)
        else:
            text.add(str(element))
    found = " ".join(next(iter(title.strings), "").split()) if title else ""
    return ParsedDocument(
        text.finish(),
        format="markdown",
        metadata={**({"title": found} if found else {}), **decoded.metadata},
        warnings=decoding_warnings(decoded, fallback),
    )


def _declared(content: bytes) -> str | None:
    found = _DECLARED.search(content, 0, _SNIFFED)
    if not found:
        return None
    name = (found.group(1) or found.group(2)).decode("ascii", "replace").lower()
    return _MEANT.get(name, name)


def _soup(text: str) -> BeautifulSoup:
    with warnings.catch_warnings():
        # Advice to the programmer: that the text looks like a file name, an address, XML.
        warnings.simplefilter("ignore")
        return BeautifulSoup(text, "html.parser")


def _title(soup: BeautifulSoup) -> Tag | None:
    """The page's title; not that of a drawing in it."""
    for title in soup.find_all("title"):
        if not title.find_parent("svg"):
            return title
    return None


def _walk(soup: BeautifulSoup, title: Tag | None) -> Iterator[tuple[PageElement, bool]]:
    """Elements at their start and end, and visible strings, in document order; no recursion."""
    pending: list[tuple[PageElement, bool]] = [(soup, False)]
    while pending:
        element, is_end = pending.pop()
        if not isinstance(element, Tag):
            if _is_visible(element):
                yield element, False
            continue
        if element.name in _INVISIBLE or (element is title and not element.find(name=True)):
            continue
        yield element, is_end
        if not is_end:
            pending.append((element, True))
            pending.extend((child, False) for child in reversed(element.contents))


def _is_visible(element: PageElement) -> bool:
    hidden = isinstance(element, PreformattedString) and not isinstance(element, CData)
    return isinstance(element, NavigableString) and not hidden
