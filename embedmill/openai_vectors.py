"""Vectors out of OpenAI-style embedding replies, straight into one float32 array.

A component of a reply is a base64 text (float32, little-endian: 97,000 rows of 1,536 a second) or a
list of numbers (13,900). Servers that are told to send base64 may send lists all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np
import orjson

from embedmill.embedder import Vectors, checked_rows
from embedmill.errors import PermanentError
from embedmill.recipe import EmbeddingRecipe

_T = TypeVar("_T")


class EmbeddingItem(msgspec.Struct):
    """One vector of a reply, still encoded; place it by its index, never by its position."""

    index: int
    embedding: msgspec.Raw


class EmbeddingUsage(msgspec.Struct):
    """What a reply was charged for."""

    total_tokens: int = 0
    prompt_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The total, or the prompt's where no total is given."""
        return self.total_tokens or self.prompt_tokens


class EmbeddingBody(msgspec.Struct):
    """A reply of the embeddings endpoint; unknown fields are let be."""

    data: list[EmbeddingItem]
    usage: EmbeddingUsage | None = None

    @property
    def tokens(self) -> int:
        """Charged for; 0 where the server does not say."""
        return self.usage.tokens if self.usage else 0


@dataclass(frozen=True, slots=True)
class DecodedVectors:
    """Vectors in the order of their items, checked against a recipe.

    Attributes:
        vectors: float32, shape (n, dimension); NaN where the item failed.
        failures: by position of the item.
    """

    vectors: Vectors
    failures: dict[int, PermanentError] = field(default_factory=dict)


_decode_body = msgspec.json.Decoder(EmbeddingBody).decode
_decode_bytes = msgspec.json.Decoder(bytes).decode


def decode_body(body: bytes) -> EmbeddingBody:
    """Read a reply; NaN and Infinity, which JSON does not have, are let pass to the check.

    Raises:
        ValueError: it is not such a reply.
    """
    return decode_lenient(body, _decode_body, EmbeddingBody)


def decode_lenient(body: bytes, decode: Callable[[bytes], _T], kind: type[_T]) -> _T:
    """Decode JSON; where a number is NaN or Infinity, put nulls in their place first.

    Raises:
        ValueError: it is not JSON, or not of this kind.
    """
    try:
        return decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # orjson writes NaN as null, and a vector with a null counts as not finite.
        return msgspec.json.decode(orjson.dumps(json.loads(body)), type=kind)


def decoded(items: Sequence[EmbeddingItem], recipe: EmbeddingRecipe) -> DecodedVectors:
    """Decode and check the vectors of items, in the order given."""
    vectors = np.full((len(items), recipe.dimension), np.nan, np.float32)
    failures: dict[int, PermanentError] = {}
    for row, item in enumerate(items):
        try:
            vector = _vector_of(bytes(item.embedding))
        except ValueError as error:
            failures[row] = PermanentError(str(error), code="not-finite")
            continue
        if vector.shape == (recipe.dimension,):
            vectors[row] = vector
        else:
            failures[row] = PermanentError(
                f"a vector of {vector.size} components, the recipe says {recipe.dimension}",
                code="dimension",
            )
    vectors, checked = checked_rows(vectors, recipe)
    return DecodedVectors(vectors, checked | failures)


def _vector_of(encoded: bytes) -> Vectors:
    if encoded[:1] == b'"':
        # The JSON decoder reads base64 by itself, escapes and all; ValueError where it is none.
        packed = _decode_bytes(encoded)
        if len(packed) % 4:
            raise ValueError(f"{len(packed)} bytes are no float32 values")
        return np.frombuffer(packed, "<f4")
    values = orjson.loads(encoded)
    if not isinstance(values, list):
        raise ValueError(f"no list of numbers: {encoded[:20]!r}")  # noqa: TRY004, as all others
    try:
        # A null becomes NaN.
        return np.array(values, np.float32)
    except TypeError as error:
        raise ValueError(f"no list of numbers: {error}") from error
