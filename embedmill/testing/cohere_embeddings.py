"""The fake Cohere server's model: checks a request as the real one does, and answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embedmill.cohere_models import COHERE_MODELS, MOST_INPUTS, CohereModel
from embedmill.embedder import Vectors
from embedmill.openai_tokens import TokenEstimate
from embedmill.testing.cohere_account import ApiError, ServerOptions
from embedmill.testing.cohere_faults import Fault
from embedmill.testing.fake_vectors import encoded, nothing_like, vectors_for

_KNOWN = {
    "model",
    "input_type",
    "texts",
    "images",
    "inputs",
    "max_tokens",
    "output_dimension",
    "embedding_types",
    "truncate",
    "priority",
}
_TYPES = ("float", "int8", "uint8", "binary", "ubinary", "base64")
_INPUT_TYPES = ("search_document", "search_query", "classification", "clustering", "image")
# The third generation's vectors are not said to have norm 1, and these have another.
_LENGTH_OF_OTHERS = 1.25


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was checked.

    Attributes:
        texts: as they came.
        seen: as the model sees them: cut where that was allowed.
        tokens: of all texts.
        dimension: of the vectors.
        body: as it came.
    """

    texts: list[str]
    seen: list[str]
    tokens: int
    dimension: int
    body: dict[str, Any]


def checked_request(body: Any, options: ServerOptions) -> Asked:  # noqa: ANN401, what came over the wire
    """What an embed request asks for.

    Raises:
        ApiError: what the real server would refuse; texts with a refused word, too.
    """
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise ApiError(400, "invalid request: model is required")
    if unknown := body.keys() - _KNOWN:
        raise ApiError(422, f"unknown field: parameter '{min(unknown)}' is not a valid field")
    model = COHERE_MODELS.get(body["model"])
    if model is None:
        raise ApiError(
            404,
            f"model '{body['model']}' not found, make sure the correct model ID was used and that "
            "you have access to the model.",
        )
    _refuse_options(body, model)
    texts = _texts(body)
    seen, counts = _within(texts, model, options, body.get("truncate", "END"))
    if sum(counts) > options.request_tokens:
        words = f"too many tokens: total number of tokens in the request is {sum(counts)}"
        raise ApiError(400, words, kind="TOO_MANY_TOKENS")
    if any(word in text for word in options.refused_words for text in texts):
        raise ApiError(400, "invalid request: a text cannot be processed")
    return Asked(texts, seen, sum(counts), body.get("output_dimension") or model.dimension, body)


def reply_body(asked: Asked) -> dict[str, Any]:
    """The reply to a request that was checked."""
    model = asked.body["model"]
    vectors = vectors_for(asked.seen, model, asked.dimension, asked.body["input_type"])
    if not COHERE_MODELS[model].shortens:
        vectors *= np.float32(_LENGTH_OF_OTHERS)
    return {
        "id": "00000000-0000-0000-0000-000000000000",
        "embeddings": {kind: _encoded(vectors, kind) for kind in asked.body["embedding_types"]},
        "texts": asked.texts,
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": asked.tokens},
        },
        "response_type": "embeddings_by_type",
    }


def spoiled(record: dict[str, Any], faults: Sequence[Fault]) -> dict[str, Any]:
    """A reply as it is planned to be wrong."""
    for fault in faults:
        for vectors in record["embeddings"].values():
            _spoil(vectors, fault)
        if fault.do == "shuffled-reply":
            record["texts"].reverse()
    return record


def _spoil(vectors: list[Any], fault: Fault) -> None:
    match fault.do:
        case "shuffled-reply":
            vectors.reverse()
        case "short-reply":
            vectors.pop()
        case "empty-reply":
            vectors.clear()
        case "nan-reply":
            vectors[0] = nothing_like(vectors[0])
        case "narrow-reply":
            vectors[0] = encoded(np.ones(1, np.float32), as_base64=isinstance(vectors[0], str))
        case _:
            return


def _encoded(vectors: Vectors, kind: str) -> list[Any]:
    if kind == "base64":
        return [encoded(row, "float", as_base64=True) for row in vectors]
    return [encoded(row, kind, as_base64=False) for row in vectors]


def _refuse_options(body: dict[str, Any], model: CohereModel) -> None:
    if body.get("input_type") not in _INPUT_TYPES:
        raise ApiError(400, "invalid request: valid input_type must be provided with this model")
    types = body.get("embedding_types")
    if not isinstance(types, list) or not types or not set(types) <= set(_TYPES):
        raise ApiError(400, f"invalid request: embedding_types must be some of {_TYPES}")
    if body.get("truncate", "END") not in {"NONE", "START", "END"}:
        raise ApiError(400, "invalid request: truncate must be one of NONE, START, END")
    asked = body.get("output_dimension")
    if asked is not None and (not model.shortens or asked not in model.dimensions):
        raise ApiError(400, f"invalid request: output_dimension {asked} is not supported")


def _texts(body: dict[str, Any]) -> list[str]:
    texts: Any = body.get("texts")
    if not isinstance(texts, list) or not texts:
        raise ApiError(400, "invalid request: at least one text is required")
    if len(texts) > MOST_INPUTS:
        raise ApiError(
            400,
            f"invalid request: total number of texts must be at most {MOST_INPUTS} - received "
            f"{len(texts)}",
        )
    for at, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise ApiError(400, f"invalid request: texts must not be empty: texts[{at}]")
    return texts


def _within(
    texts: list[str], model: CohereModel, options: ServerOptions, truncate: str
) -> tuple[list[str], list[int]]:
    counts = [options.count_tokens(text) for text in texts]
    if max(counts) <= model.window:
        return texts, counts
    if truncate == "NONE":
        words = f"too many tokens: the maximum for this model is {model.window}"
        raise ApiError(400, words, kind="TOO_MANY_TOKENS")
    counter = TokenEstimate()
    cut = [
        counter.cut(text, model.window) if count > model.window else text
        for text, count in zip(texts, counts, strict=True)
    ]
    return cut, [min(count, model.window) for count in counts]
