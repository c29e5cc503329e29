"""Cohere's result files: Avro containers, read to their end and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
import numpy as np

from embedmill.batch_provider import RowFailure, RowOutcome
from embedmill.batch_providers.cohere_limits import KEPT_FIELD
from embedmill.embedder import Vectors, checked_rows
from embedmill.errors import TransientError
from embedmill.recipe import EmbeddingRecipe
from embedmill.vector_encoding import normalised

# Rows that are checked at a time.
_BLOCK = 256


def outcomes_of_part(path: Path, rows: int | None, recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
    """The outcomes of one part of a result, checked against the recipe.

    Args:
        path: of the part on the local disk.
        rows: that it holds, as its owner says; None: it does not.
        recipe: of the vectors.

    Raises:
        TransientError: code ``truncated-results``: it is cut off, or no such file. A file that ends
            between two blocks is whole to Avro: only the number of rows tells.
    """
    seen = 0
    try:
        with path.open("rb") as file:
            for block in _blocks(fastavro.reader(file)):
                seen += len(block)
                yield from _outcomes(block, recipe)
    except (ValueError, EOFError, KeyError, IndexError, StopIteration) as error:
        raise TransientError(
            f"part {path.name} cannot be read: {type(error).__name__}: {error}",
            code="truncated-results",
        ) from error
    if rows is not None and seen != rows:
        raise TransientError(
            f"part {path.name} holds {seen} rows, not {rows}", code="truncated-results"
        )


def _blocks(records: Iterator[Any]) -> Iterator[list[Mapping[str, Any]]]:
    block: list[Mapping[str, Any]] = []
    for record in records:
        block.append(record)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


def _outcomes(block: list[Mapping[str, Any]], recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
    vectors = np.full((len(block), recipe.dimension), np.nan, np.float32)
    wrong: dict[int, RowFailure] = {}
    for at, record in enumerate(block):
        vector = _vector(record)
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
    for at, record in enumerate(block):
        failure = wrong.get(at)
        if failure is None and at in failures:
            failure = RowFailure("permanent", failures[at].code, str(failures[at]))
        name = record.get(KEPT_FIELD)
        yield RowOutcome(
            None if name is None else str(name),
            0,
            vector=None if failure else checked[at],
            failure=failure,
        )


def _vector(record: Mapping[str, Any]) -> Vectors:
    values = (record.get("embeddings") or {}).get("float")
    try:
        return np.array([] if values is None else values, np.float32)
    except (TypeError, ValueError):
        return np.empty(0, np.float32)
