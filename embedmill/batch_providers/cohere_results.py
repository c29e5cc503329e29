"""Cohere's result files: Avro containers, read to their end and counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np

from embedmill.batch_provider import RowFailure, RowOutcome
from embedmill.batch_providers.cohere_limits import KEPT_FIELD
from embedmill.embedder import Vectors, checked_rows
from embedmill.errors import TransientError
from embedmill.recipe import EmbeddingRecipe
from embedmill.redaction import redacted
from embedmill.vector_encoding import normalised

# Vectors that are checked at a time; a row of a batch holds many.
_BLOCK = 256
# A batch says why a row failed in words alone. These do not blame the row.
_PASSING = re.compile(
    r"internal|time[d ]*out|unavailable|overload|rate limit|too many requests|try again|cancel",
    re.I,
)

Row = Mapping[str, Any]


def outcomes_of_part(path: Path, rows: int | None, recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
    """The outcomes of one part of an embed job's result, checked against the recipe.

    Args:
        path: of the part on the local disk.
        rows: that it holds, as its owner says; None: it does not.
        recipe: of the vectors.

    Raises:
        TransientError: code ``truncated-results``: it is cut off, or no such file. A file that ends
            between two blocks is whole to Avro: only the number of rows tells.
    """
    return _read(path, rows, _BLOCK, lambda block: _of_texts(block, recipe))


def outcomes_of_batch_part(
    path: Path, rows: int | None, recipe: EmbeddingRecipe
) -> Iterator[RowOutcome]:
    """The same of a batch's result; a row holds the texts of one request, or why it has none."""
    return _read(path, rows, 1, lambda block: _of_request(block[0], recipe))


def _read(
    path: Path,
    rows: int | None,
    at_once: int,
    outcomes: Callable[[Sequence[Row]], Iterator[RowOutcome]],
) -> Iterator[RowOutcome]:
    seen = 0
    try:
        with path.open("rb") as file:
            for block in _blocks(fastavro.reader(file), at_once):
                seen += len(block)
                yield from outcomes(block)
    except (ValueError, EOFError, KeyError, IndexError, StopIteration) as error:
        raise TransientError(
            f"part {path.name} cannot be read: {type(error).__name__}: {error}",
            code="truncated-results",
        ) from error
    if rows is not None and seen != rows:
        raise TransientError(
            f"part {path.name} holds {seen} rows, not {rows}", code="truncated-results"
        )


def _blocks(records: Iterator[Any], at_once: int) -> Iterator[list[Row]]:
    block: list[Row] = []
    for record in records:
        block.append(record)
        if len(block) == at_once:
            yield block
            block = []
    if block:
        yield block


def _of_texts(block: Sequence[Row], recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
    found = [(record.get("embeddings") or {}).get("float") for record in block]
    for record, (vector, failure) in zip(block, _checked(found, recipe), strict=True):
        name = record.get(KEPT_FIELD)
        yield RowOutcome(None if name is None else str(name), 0, vector=vector, failure=failure)


def _of_request(record: Row, recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
    name = record.get("custom_id")
    custom_id = None if name is None else str(name)
    body = record.get("body") or {}
    found = (body.get("embeddings") or {}).get("float")
    if record.get("error") or not found:
        yield RowOutcome(custom_id, None, failure=_failure(str(record.get("error") or "")))
        return
    billed = (body.get("meta") or {}).get("billed_units") or {}
    tokens = int(billed.get("input_tokens") or 0)
    for index, (vector, failure) in enumerate(_checked(found, recipe)):
        yield RowOutcome(
            custom_id, index, vector=vector, failure=failure, tokens=0 if index else tokens
        )


def _failure(said: str) -> RowFailure:
    """Why a request failed; one of its texts is to blame unless the words speak of something else.

    Where several texts share the request, each is then sent alone: that finds the one.
    """
    if not said:
        return RowFailure("retryable", "no-vectors", "the row holds no vectors, and no error")
    if _PASSING.search(said):
        return RowFailure("retryable", "request-failed", redacted(said))
    return RowFailure("permanent", "request-refused", redacted(said))


def _checked(
    found: Sequence[object], recipe: EmbeddingRecipe
) -> Iterator[tuple[Vectors | None, RowFailure | None]]:
    """Each vector, of norm 1, or what is wrong with it."""
    vectors = np.full((len(found), recipe.dimension), np.nan, np.float32)
    wrong: dict[int, RowFailure] = {}
    for at, values in enumerate(found):
        vector = _vector(values)
        if vector.shape == (recipe.dimension,):
            vectors[at] = vector
        else:
            wrong[at] = RowFailure(
                "permanent",
                "dimension",
                f"a vector of {vector.size} components, the recipe says {recipe.dimension}",
            )
    # No version of Cohere's models is said to return norm 1.
    checked, failures = checked_rows(normalised(vectors), recipe)
    for at in range(len(found)):
        failure = wrong.get(at)
        if failure is None and at in failures:
            failure = RowFailure("permanent", failures[at].code, str(failures[at]))
        yield None if failure else checked[at], failure


def _vector(values: object) -> Vectors:
    try:
        return np.array([] if values is None else values, np.float32)
    except (TypeError, ValueError):
        return np.empty(0, np.float32)
