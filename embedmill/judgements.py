"""Questions with their answers: which documents are relevant to which query, as people judged.

Files as in BEIR: the queries are JSON lines, the judgements are tab-separated (query, document,
grade), with or without a line of column names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import orjson

from embedmill.errors import SettingsError
from embedmill.gate_settings import GateSettings
from embedmill.plain_numbers import number_of

# Of a line of judgements: query, document, grade.
_COLUMNS = 3
Judgements: TypeAlias = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class LabelledQueries:
    """Queries that can be scored.

    Attributes:
        texts: by query id, those with at least one relevant document, sorted by id.
        judged: grades by query and document.
    """

    texts: Mapping[str, str]
    judged: Judgements


def questions_of(gates: GateSettings) -> LabelledQueries | None:
    """What the files hold that the settings name; None where they name none.

    Raises:
        SettingsError: see :func:`labelled_queries`.
    """
    if gates.queries is None or gates.qrels is None:
        return None
    return labelled_queries(Path(gates.queries), Path(gates.qrels))


def labelled_queries(queries: Path, qrels: Path) -> LabelledQueries:
    """Read questions and judgements.

    Raises:
        SettingsError: a file is not there or not in its form, or no question is judged.
    """
    texts, judged = read_queries(queries), read_judgements(qrels)
    found = {name: texts[name] for name in sorted(texts) if name in judged}
    if not found:
        raise SettingsError(
            f"none of the {number_of(len(texts), 'query', 'queries')} of {queries} has a relevant "
            f"document in {qrels}"
        )
    return LabelledQueries(found, judged)


def read_judgements(path: Path) -> Judgements:
    """Grades by query and document; queries without a relevant document cannot be scored.

    Raises:
        SettingsError: the file is not there, or a line is not in its form.
    """
    judged: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for number, line in _lines(path):
        fields = line.rstrip("\r").split("\t")
        if number == 1 and len(fields) == _COLUMNS and not _is_number(fields[-1]):
            # The names of the columns.
            continue
        try:
            query, document, grade = fields
            judged[query][document] = int(grade)
        except ValueError:
            raise SettingsError(
                f"{path}:{number}: a line is query, document and grade (a whole number), "
                f"separated by tabs; found {line[:80]!r}"
            ) from None
    return {query: grades for query, grades in judged.items() if max(grades.values()) > 0}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_queries(path: Path) -> dict[str, str]:
    """Texts by query id.

    Raises:
        SettingsError: the file is not there, a line is not in its form, or an id stands twice.
    """
    texts: dict[str, str] = {}
    for number, line in _lines(path):
        name, text = _query(line)
        if not name or not text.strip():
            raise SettingsError(
                f"{path}:{number}: a line is a JSON object with `_id` (or `query_id`) and `text`; "
                f"found {line[:80]!r}"
            )
        if name in texts:
            raise SettingsError(f"{path}:{number}: an earlier line has the query {name!r} too")
        texts[name] = text
    return texts


def _query(line: str) -> tuple[str, str]:
    """Id and text of a query; empty texts where there are none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "", ""
    if not isinstance(record, dict):
        return "", ""
    name, text = record.get("query_id", record.get("_id")), record.get("text")
    if isinstance(name, bool) or not isinstance(name, int | str) or not isinstance(text, str):
        return "", ""
    return str(name), text


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with something in them, by number; LF alone ends one, a byte order mark is none."""
    try:
        text = _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    return ((n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
