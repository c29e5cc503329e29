"""The fake OpenAI server's model: checks a request as the real one does, and answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embedmill.openai_settings import NATIVE_DIMENSIONS, SHORTENABLE
from embedmill.testing.fake_vectors import encoded, vectors_for
from embedmill.testing.openai_account import ApiError, ServerOptions

# OpenAI's own limits; embeddings reference, November 2026.
MOST_INPUTS, MOST_TOKENS_PER_INPUT, MOST_TOKENS = 2048, 8192, 300_000
_OTHER_DIMENSION = 1536


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
