"""Lists of numbers in JSON replies of embedding endpoints, parsed by SIMD.

Numbers go from the text into a buffer without becoming Python objects. Whatever is not plain (a
null, NaN, another shape) is left to a parser that can say what is wrong.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import simdjson

from embedmill.embedder import Vectors

# Replies say early what they hold; looking further costs more than the other parser.
_HEAD = 4096
_FIRST = re.compile(rb'"embedding"\s*:\s*(.)')
# What the parser raises for JSON that is not as it should be, or that it does not take.
_ODD = (ValueError, TypeError, KeyError, AttributeError, RuntimeError)


class _Parsers(threading.local):
    """One a thread: its memory is used again for the next reply."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_parsers = _Parsers()


@dataclass(frozen=True, slots=True)
class NumbersItem:
    """One vector of a reply that was sent as a list of numbers.

    Attributes:
        index: place it by this, never by its position.
        embedding: float32.
    """

    index: int
    embedding: Vectors


def numbers_body(body: bytes | memoryview) -> tuple[list[NumbersItem], object] | None:
    """Vectors and usage of a reply; None where it is anything but lists of plain numbers."""
    if not _begins_with_a_list(body):
        return None
    try:
        return _read(_parsers.parser.parse(body))
    except _ODD:
        return None


def numbers_line(line: bytes) -> tuple[str, list[NumbersItem], object] | None:
    """Custom id, vectors and usage of a line of results that succeeded.

    None where it is anything else than lists of plain numbers, or there is any doubt of success.
    """
    if not _begins_with_a_list(line):
        return None
    try:
        record: Any = _parsers.parser.parse(line)
        custom_id, response = record["custom_id"], record["response"]
        succeeded = response["status_code"] == 200 and record.get("error") is None
        if succeeded and isinstance(custom_id, str):
            return custom_id, *_read(response["body"])
    except _ODD:
        pass
    return None


def _begins_with_a_list(text: bytes | memoryview) -> bool:
    first = _FIRST.search(text, 0, _HEAD)
    return first is not None and first[1] == b"["


def _read(body: Any) -> tuple[list[NumbersItem], object]:  # noqa: ANN401 - of the parser
    items = [NumbersItem(_index_of(item), _numbers(item["embedding"])) for item in body["data"]]
    usage = body.get("usage")
    return items, None if usage is None else usage.as_dict()


def _index_of(item: Any) -> int:  # noqa: ANN401 - of the parser
    index = item["index"]
    if not isinstance(index, int):
        raise TypeError(f"index {index!r}")
    return index


def _numbers(values: Any) -> Vectors:  # noqa: ANN401 - of the parser
    # Numbers beyond float32 become infinite, which the check of the vectors finds.
    with np.errstate(over="ignore"):
        return np.frombuffer(values.as_buffer(of_type="d"), np.float64).astype(np.float32)
