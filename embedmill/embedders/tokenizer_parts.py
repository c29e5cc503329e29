"""Which tokenizers part a text before they look at it: read from tokenizer.json, never tried out.

A tokenizer that parts at blanks, and whose normaliser works on characters or on what stands between
two blanks, makes of a text exactly what it makes of its words one after the other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

# Pre-tokenizers that part a text at its blanks and lose these.
PART_AT_BLANKS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
# Normalisers that look at characters, or at combining marks and what these stand on; no blank
# joins either. The others may look at blanks themselves (Replace, Precompiled, Prepend).
_LOCAL = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"}
_ASCII_MARKS = r"!-/:-@\[-`{-~"
# BERT's pre-tokenizer takes each ASCII mark for a word.
LOCAL_MARKS = re.compile(rf"[{_ASCII_MARKS}]|[^{_ASCII_MARKS}]+")


def first_pre_tokenizer(record: dict[str, Any] | None) -> str:
    """The kind of the pre-tokenizer that sees a text first; empty when there is none."""
    if record is None:
        return ""
    if record["type"] == "Sequence":
        return first_pre_tokenizer(record["pretokenizers"][0])
    return str(record["type"])


def parts_at_blanks(record: dict[str, Any]) -> bool:
    """Whether a text's tokens are those of its words.

    Args:
        record: a whole tokenizer.json.
    """
    return (
        first_pre_tokenizer(record.get("pre_tokenizer")) in PART_AT_BLANKS
        and all(kind in _LOCAL for kind in _normalisers(record.get("normalizer")))
        and not any(map(_has_blank, _own_words(record)))
    )


def parts_at_marks(record: dict[str, Any]) -> bool:
    """Whether the tokens of a word are those of its ASCII marks and of what stands between them.

    Only with BERT's own normaliser: others may compose a mark with what stands after it.
    """
    return (
        parts_at_blanks(record)
        and first_pre_tokenizer(record.get("pre_tokenizer")) == "BertPreTokenizer"
        and set(_normalisers(record.get("normalizer"))) <= {"BertNormalizer", "Lowercase"}
        and not list(_own_words(record))
    )


def _normalisers(record: dict[str, Any] | None) -> Iterator[str]:
    if record is None:
        return
    if record["type"] == "Sequence":
        for inner in record["normalizers"]:
            yield from _normalisers(inner)
    else:
        yield str(record["type"])


def _own_words(record: dict[str, Any]) -> Iterator[str]:
    """Words that were added to the vocabulary and are looked for in the whole text.

    Control strings are not among them: they are text here.
    """
    for added in record.get("added_tokens") or ():
        if not added["special"]:
            yield added["content"]


def _has_blank(word: str) -> bool:
    return any(map(str.isspace, unicodedata.normalize("NFKD", word)))
