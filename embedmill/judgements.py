"""Questions with their answers: which documents are relevant to which query, as people judged.

Files as in BEIR: the queries are JSON lines, the judgements are tab-separated (query, document,
grade), with or without a line of column names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import orjson

from embedmill.errors import SettingsError
from embedmill.plain_numbers import number_of

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
    for number, line in enumerate(_bytes(path).decode("utf-8", "replace").splitlines()):
        # The first line may hold the names of the columns.
        if not line.strip() or (number == 0 and not line.split("\t")[-1].lstrip("-").isdigit()):
            continue
        try:
            query, document, grade = line.split("\t")
            judged[query][document] = int(grade)
        except ValueError:
            raise SettingsError(
                f"{path}:{number + 1}: a line is query, document and grade (a whole number), "
                "separated by tabs"
            ) from None
    return {query: grades for query, grades in judged.items() if max(grades.values()) > 0}


def read_queries(path: Path) -> dict[str, str]:
    """Texts by query id.

    Raises:
        SettingsError: the file is not there, or a line is not in its form.
    """
    texts: dict[str, str] = {}
    for number, line in enumerate(_bytes(path).splitlines()):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
            texts[str(record.get("query_id", record.get("_id")))] = str(record["text"])
        except (orjson.JSONDecodeError, AttributeError, KeyError):
            raise SettingsError(
                f"{path}:{number + 1}: a line is a JSON object with `_id` (or `query_id`) and "
                "`text`"
            ) from None
    return texts


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
