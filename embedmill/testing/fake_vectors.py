"""Vectors of fake providers: made of words, encoded as providers do, spoiled by plan."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from embedmill.embedder import Vectors
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.settings import HashingEmbedderSettings
from embedmill.testing.fault_plan import PlannedFault

_lock = threading.Lock()
# Of a text's vector, when its input type is told: near the one without, but another.
_ACCENT = 0.1


def vectors_for(texts: Sequence[str], model: str, dimension: int, input_type: str = "") -> Vectors:
    """Unit vectors that depend on the arguments alone; no component is exactly zero.

    Texts that share words are near each other; vectors of two models have nothing in common. Every
    component is a float16, as those of OpenAI's server were seen to be.
    """
    with _lock:
        words = _words_of(dimension).embed(texts, "document").vectors
    words = np.nan_to_num(words)
    noise = np.stack([_noise(text.encode("utf-8"), dimension) for text in texts])
    vectors = words + 0.25 * noise
    if input_type:
        vectors += _ACCENT * _noise(input_type.encode("utf-8"), dimension)
    vectors *= _signs_of(model, dimension)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounded: Vectors = vectors.astype(np.float16).astype(np.float32)
    return rounded


def encoded(vector: Vectors, kind: str = "float", *, as_base64: bool) -> str | list[float]:
    """A vector as a reply has it; see :mod:`embedmill.vector_encoding`."""
    sent = _quantised(vector, kind)
    if as_base64:
        return base64.b64encode(sent.tobytes()).decode("ascii")
    numbers: list[float] = sent.tolist()
    return numbers


def spoiled(record: dict[str, Any], faults: Sequence[PlannedFault]) -> dict[str, Any]:
    """A reply with vectors by index, as it is planned to be wrong."""
    data = record.get("data")
    for fault in faults:
        if isinstance(data, list) and data:
            _spoil(data, fault)
    return record


def nothing_like(embedding: str | list[Any]) -> str | list[float]:
    """As many NaN as there are float components, encoded alike."""
    if isinstance(embedding, str):
        size = len(base64.b64decode(embedding)) // 4
        return encoded(np.full(size, np.nan, np.float32), as_base64=True)
    return encoded(np.full(len(embedding), np.nan, np.float32), as_base64=False)


def _spoil(data: list[dict[str, Any]], fault: PlannedFault) -> None:
    match fault.do:
        case "shuffled-reply":
            data.reverse()
        case "short-reply":
            data.pop()
        case "empty-reply":
            data.clear()
        case "doubled-index-reply":
            data[-1]["index"] = data[0]["index"]
        case "nan-reply":
            data[0]["embedding"] = nothing_like(data[0]["embedding"])
        case "narrow-reply":
            data[0]["embedding"] = encoded(np.ones(1, np.float32), as_base64=True)
        case _:
            return


def _quantised(vector: Vectors, kind: str) -> npt.NDArray[Any]:
    sent: npt.NDArray[Any] = np.ascontiguousarray(vector, "<f4")
    if kind in {"int8", "uint8"}:
        scaled = np.round(vector / np.abs(vector).max() * 127).astype(np.int16)
        sent = scaled.astype(np.int8) if kind == "int8" else (scaled + 128).astype(np.uint8)
    if kind in {"binary", "ubinary"}:
        packed = np.packbits(vector > 0)
        sent = packed if kind == "ubinary" else (packed.astype(np.int16) - 128).astype(np.int8)
    return sent


@lru_cache(maxsize=4)
def _words_of(dimension: int) -> HashingEmbedder:
    settings = HashingEmbedderSettings(kind="hashing", dimension=dimension, max_tokens=10_000_000)
    return HashingEmbedder(settings, hashing_recipe(settings, "cosine"))


@lru_cache(maxsize=16)
def _signs_of(model: str, dimension: int) -> Vectors:
    signs: Vectors = np.sign(_noise(model.encode("utf-8"), dimension))
    return signs


def _noise(seed: bytes, dimension: int) -> Vectors:
    """A direction at random, but the same for the same seed."""
    key = int.from_bytes(blake2b(seed, digest_size=16).digest())
    values = np.random.Generator(np.random.Philox(key=key)).standard_normal(dimension, np.float32)
    unit: Vectors = values / np.linalg.norm(values)
    return unit
