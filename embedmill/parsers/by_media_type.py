"""The parser that every pipeline uses: one for each media type."""

from __future__ import annotations

import re
from importlib.metadata import version

from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.parsers import html_text, markdown, notebook, subtitles, text
from embedmill.parsers.decoding import codec_name, needs_fallback
from embedmill.parsers.markdown import parse_markdown
from embedmill.parsers.text import parse_python, parse_text

_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
# How PDF and zip files begin, office documents among them. Short ones may be valid UTF-8.
_NO_TEXT = (b"%PDF-", b"PK\x03\x04")


class MediaTypeParser:
    """Parses text, reStructuredText, Python, Markdown, HTML, Jupyter notebooks and subtitles.

    A media type may carry the encoding of HTML (``text/html; charset=utf-8``); it then counts
    before what the page says of itself.

    Args:
        fallback_encoding: of documents that are not UTF-8 and do not say what they are.
    """

    def __init__(self, fallback_encoding: str | None = None) -> None:
        self._fallback = fallback_encoding and codec_name(fallback_encoding)

    @property
    def fingerprint(self) -> str:
        """Changes when the same bytes may come out as another text; for the chunking recipe.

        The fallback encoding is no part of it, but of the fingerprint of each document that it may
        decide.
        """
        soup = version("beautifulsoup4").partition(".")[0]
        # These came later, with media types of their own, by which each is cut anew: an index
        # without any keeps the fingerprint that it had.
        came = (("notebook", notebook.VERSION), ("subtitles", subtitles.VERSION))
        later = "".join(f" {name}-{number}" for name, number in came if number > 1)
        return (
            f"text-{text.VERSION} markdown-{markdown.VERSION} html-{html_text.VERSION} "
            f"beautifulsoup4-{soup}{later}"
        )

    def fallback_for(self, content: bytes) -> str:
        """See :class:`~embedmill.parser.Parser`."""
        return self._fallback if self._fallback and needs_fallback(content) else ""

    def parse(self, content: bytes, media_type: str) -> ParsedDocument:
        """Parse ``content``.

        Raises:
            PermanentError: it cannot be decoded (``encoding``, ``binary``), or nothing parses the
                media type (``media-type``).
        """
        if content.startswith(_NO_TEXT):
            raise PermanentError(
                "a PDF, office or zip file, which nothing here parses; convert it to text first",
                code="media-type",
            )
        match media_type.partition(";")[0].strip().lower():
            case "text/plain" | "text/x-rst":
                return parse_text(content, self._fallback)
            case "text/x-python":
                return parse_python(content, self._fallback)
            case "text/markdown":
                return parse_markdown(content, self._fallback)
            case "text/html" | "application/xhtml+xml":
                # What parses it takes a tenth of a second to import.
                from embedmill.parsers.html import parse_html

                charset = _CHARSET.search(media_type)
                return parse_html(content, self._fallback, charset.group(1) if charset else None)
            case "application/x-ipynb+json":
                return notebook.parse_notebook(content, self._fallback)
            case "text/vtt" | "application/x-subrip":
                return subtitles.parse_subtitles(content, self._fallback)
            case _:
                raise PermanentError(f"nothing parses {media_type!r}", code="media-type")
