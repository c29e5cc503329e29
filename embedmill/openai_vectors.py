"""Vectors out of OpenAI-style embedding replies, straight into one float32 array.

A vector is a base64 text (float32, little-endian) or a list of numbers; servers that are told to
send base64 may send lists all the same. Neither becomes Python numbers on its way: base64 is
decoded by SIMD, lists are parsed by SIMD into a buffer (``scripts/bench jobs`` measures both).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import msgspec
import numpy as np
import orjson
import pybase64

from embedmill.embedder import Vectors, checked_rows
from embedmill.errors import PermanentError
from embedmill.json_numbers import NumbersItem, numbers_body
from embedmill.recipe import EmbeddingRecipe
from embedmill.vector_encoding import from_bytes, from_numbers, normalised

_T = TypeVar("_T")
_QUOTE = ord('"')
# Bytes of base64 that are decoded in one go.
_AT_ONCE = 1 << 16


# Without the garbage collector: thousands of them at a time would keep it busy for nothing.
class EmbeddingItem(msgspec.Struct, gc=False):
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


class WireBody(msgspec.Struct):
    """A reply of the embeddings endpoint as it comes; unknown fields are let be."""

    data: list[EmbeddingItem]
    usage: EmbeddingUsage | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingBody:
    """A reply of the embeddings endpoint.

    Attributes:
        data: in the order of the reply.
        tokens: charged for; 0 where the server does not say.
    """

    data: Sequence[EmbeddingItem | NumbersItem]
    tokens: int

    @classmethod
    def of(cls, wire: WireBody) -> Self:
        """What was read."""
        return cls(wire.data, wire.usage.tokens if wire.usage else 0)

    @classmethod
    def of_numbers(cls, found: tuple[list[NumbersItem], object]) -> Self | None:
        """What was parsed; None where the usage cannot be understood."""
        items, charged = found
        if charged is None:
            return cls(items, 0)
        if not isinstance(charged, dict):
            return None
        names = EmbeddingUsage.__struct_fields__
        known = {name: charged[name] for name in names if name in charged}
        if not all(isinstance(count, int) for count in known.values()):
            return None
        return cls(items, EmbeddingUsage(**known).tokens)


@dataclass(frozen=True, slots=True)
class DecodedVectors:
    """Vectors in the order of their items, checked against a recipe.

    Attributes:
        vectors: float32, shape (n, dimension); NaN where the item failed.
        failures: by position of the item.
    """

    vectors: Vectors
    failures: dict[int, PermanentError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VectorForm:
    """What is done with vectors before they are checked.

    Attributes:
        cut: longer ones are cut to the recipe's dimension.
        renormalise: divide each by its norm.
    """

    cut: bool = False
    renormalise: bool = False


AS_SENT = VectorForm()
_decode_body = msgspec.json.Decoder(WireBody).decode
_decode_bytes = msgspec.json.Decoder(bytes).decode


def decode_body(body: bytes | memoryview) -> EmbeddingBody:
    """Read a reply; NaN and Infinity, which JSON does not have, are let pass to the check.

    Vectors that are still encoded lie in the memory of ``body``.

    Raises:
        ValueError: it is not such a reply.
    """
    found = numbers_body(body)
    parsed = found and EmbeddingBody.of_numbers(found)
    return parsed or EmbeddingBody.of(decode_lenient(body, _decode_body, WireBody))


def decode_lenient(
    body: bytes | memoryview, decode: Callable[[bytes | memoryview], _T], kind: type[_T]
) -> _T:
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
        return msgspec.json.decode(orjson.dumps(json.loads(bytes(body))), type=kind)


def decoded(
    items: Sequence[EmbeddingItem | NumbersItem],
    recipe: EmbeddingRecipe,
    form: VectorForm = AS_SENT,
) -> DecodedVectors:
    """Decode and check the vectors of items, in the order given."""
    found = _plain_rows(items, recipe)
    vectors, failures = (found, {}) if found is not None else _rows(items, recipe, form)
    vectors, checked = checked_rows(normalised(vectors) if form.renormalise else vectors, recipe)
    return DecodedVectors(vectors, checked | failures)


def _plain_rows(
    items: Sequence[EmbeddingItem | NumbersItem], recipe: EmbeddingRecipe
) -> Vectors | None:
    """All vectors, several at once; None unless each is base64 of as many floats as it should be.

    A third of the time that one after the other takes, and no more at once than caches hold. Texts
    that are padded cannot be joined.
    """
    size = 4 * recipe.dimension
    if recipe.dtype != "float32" or size % 3 or not items:
        return None
    width = size // 3 * 4
    step = max(1, _AT_ONCE // width)
    vectors = np.empty((len(items), recipe.dimension), np.float32)
    try:
        for start in range(0, len(items), step):
            some = [_base64_of(item, width) for item in items[start : start + step]]
            packed = pybase64.b64decode(b"".join(some), validate=True)
            vectors[start : start + step] = np.frombuffer(packed, "<f4").reshape(len(some), -1)
    except ValueError:
        return None
    return vectors


def _base64_of(item: EmbeddingItem | NumbersItem, width: int) -> memoryview:
    """The base64 text of a vector; ValueError where it is none, or not so long."""
    if isinstance(item, NumbersItem):
        raise ValueError("a list of numbers")  # noqa: TRY004, as all others
    text = memoryview(item.embedding)
    if len(text) != width + 2 or text[0] != _QUOTE:
        raise ValueError("another length, or no text")
    return text[1:-1]


def _rows(
    items: Sequence[EmbeddingItem | NumbersItem], recipe: EmbeddingRecipe, form: VectorForm
) -> tuple[Vectors, dict[int, PermanentError]]:
    """One vector after the other, and why some could not be read."""
    kind = "float" if recipe.dtype == "float32" else recipe.dtype
    vectors = np.full((len(items), recipe.dimension), np.nan, np.float32)
    failures: dict[int, PermanentError] = {}
    for row, item in enumerate(items):
        try:
            vector = _vector_of(item, kind)
        except ValueError as error:
            failures[row] = PermanentError(str(error), code="not-finite")
            continue
        long = form.cut and vector.size > recipe.dimension
        if vector.ndim == 1 and (long or vector.size == recipe.dimension):
            vectors[row] = vector[: recipe.dimension]
        else:
            failures[row] = PermanentError(
                f"a vector of {vector.size} components, the recipe says {recipe.dimension}",
                code="dimension",
            )
    return vectors, failures


def _vector_of(item: EmbeddingItem | NumbersItem, kind: str) -> Vectors:
    if isinstance(item, NumbersItem):
        return item.embedding if kind == "float" else from_numbers(item.embedding.tolist(), kind)
    encoded = memoryview(item.embedding)
    if encoded[0] == _QUOTE:
        return from_bytes(_packed(encoded), kind)
    return from_numbers(orjson.loads(encoded), kind)


def _packed(encoded: memoryview) -> bytes:
    """The bytes of a base64 text in its quotes; ValueError where it is none."""
    try:
        return pybase64.b64decode(encoded[1:-1], validate=True)
    except ValueError:
        # Slashes may be escaped; the JSON decoder reads base64 by itself, escapes and all.
        return _decode_bytes(bytes(encoded))
