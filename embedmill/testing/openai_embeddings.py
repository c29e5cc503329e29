"""The fake OpenAI server's model: checks a request as the real one does, and makes vectors."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from embedmill.embedder import Vectors
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.openai_settings import NATIVE_DIMENSIONS, SHORTENABLE
from embedmill.settings import HashingEmbedderSettings
from embedmill.testing.openai_account import ApiError, ServerOptions

# OpenAI's own limits; embeddings reference, November 2026.
MOST_INPUTS, MOST_TOKENS_PER_INPUT, MOST_TOKENS = 2048, 8192, 300_000
_OTHER_DIMENSION = 1536
_lock = threading.Lock()


def checked_request(body: Any, options: ServerOptions) -> tuple[list[str], list[int]]:  # noqa: ANN401, what came over the wire
    """The texts of an embeddings request and their tokens.

    Raises:
        ApiError: what the real server would refuse; texts with a refused word, too.
    """
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise ApiError(400, "you must provide a model parameter")
    _refuse_model(body)
    given: Any = body.get("input")
    texts: list[str] = given if isinstance(given, list) else [given]
    strings = all(isinstance(text, str) and text for text in texts)
    if not strings or not 1 <= len(texts) <= MOST_INPUTS:
        raise ApiError(400, "'$.input' is invalid. Please check the API reference.")
    counts = [options.count_tokens(text) for text in texts]
    if max(counts) > MOST_TOKENS_PER_INPUT:
        raise ApiError(
            400,
            f"This model's maximum context length is {MOST_TOKENS_PER_INPUT} tokens, however you "
            f"requested {max(counts)} tokens. Please reduce your prompt.",
        )
    if sum(counts) > MOST_TOKENS:
        raise ApiError(
            400,
            f"Requested {sum(counts)} tokens, max {MOST_TOKENS} tokens per request",
            kind="max_tokens_per_request",
            code="max_tokens_per_request",
        )
    if any(word in text for word in options.refused_words for text in texts):
        raise ApiError(400, "'$.input' is invalid. Please check the API reference.")
    return texts, counts


def _refuse_model(body: dict[str, Any]) -> None:
    model, dimensions = body["model"], body.get("dimensions")
    if model.startswith("no-"):
        raise ApiError(404, f"The model {model} does not exist", code="model_not_found")
    if dimensions is None:
        return
    native = NATIVE_DIMENSIONS.get(model, _OTHER_DIMENSION)
    if model not in SHORTENABLE:
        raise ApiError(
            400, "This model does not support specifying dimensions.", param="dimensions"
        )
    if not isinstance(dimensions, int) or not 1 <= dimensions <= native:
        raise ApiError(400, f"dimensions must be from 1 to {native}", param="dimensions")


def dimension_of(body: dict[str, Any]) -> int:
    """Of the vectors that a request asks for."""
    return body.get("dimensions") or NATIVE_DIMENSIONS.get(body["model"], _OTHER_DIMENSION)


def vectors_for(texts: Sequence[str], model: str, dimension: int) -> Vectors:
    """Unit vectors that depend on model, text and dimension alone; no component is exactly zero.

    Texts that share words are near each other; vectors of two models have nothing in common. Every
    component is a float16, as those of the real server were seen to be.
    """
    with _lock:
        words = _words_of(dimension).embed(texts, "document").vectors
    words = np.nan_to_num(words)
    noise = np.stack([_noise(text.encode("utf-8"), dimension) for text in texts])
    vectors = words + 0.25 * noise
    vectors *= _signs_of(model, dimension)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounded: Vectors = vectors.astype(np.float16).astype(np.float32)
    return rounded


def encoded(vector: Vectors, *, as_base64: bool) -> str | list[float]:
    """A vector as a reply has it."""
    if as_base64:
        return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode("ascii")
    return [float(value) for value in vector]


def reply_body(
    body: dict[str, Any], texts: Sequence[str], tokens: int, options: ServerOptions
) -> dict[str, Any]:
    """The reply to a request that was checked."""
    as_base64 = options.base64 and body.get("encoding_format") == "base64"
    vectors = vectors_for(texts, body["model"], dimension_of(body))
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": at, "embedding": encoded(row, as_base64=as_base64)}
            for at, row in enumerate(vectors)
        ],
        "model": body["model"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


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
