"""The fake Voyage server's model: checks a request as the real one does, and answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embedmill.openai_tokens import TokenEstimate
from embedmill.testing.fake_vectors import encoded, vectors_for
from embedmill.testing.voyage_account import ApiError, ServerOptions
from embedmill.voyage_models import MOST_INPUTS, VOYAGE_MODELS, VoyageModel

_KNOWN = {
    "input",
    "model",
    "input_type",
    "truncation",
    "output_dimension",
    "output_dtype",
    "encoding_format",
}
_TYPES = ("float", "int8", "uint8", "binary", "ubinary")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was checked.

    Attributes:
        texts: as the model sees them: cut where that was allowed.
        tokens: of all texts.
        dimension: of the vectors.
        body: as it came.
    """

    texts: list[str]
    tokens: int
    dimension: int
    body: dict[str, Any]


def checked_request(body: Any, options: ServerOptions) -> Asked:  # noqa: ANN401, what came over the wire
    """What an embeddings request asks for.

    Raises:
        ApiError: what the real server would refuse; texts with a refused word, too.
    """
    if not isinstance(body, dict) or not body.keys() >= {"input", "model"}:
        raise ApiError(400, "The request body needs the fields input and model.")
    if unknown := body.keys() - _KNOWN:
        raise ApiError(400, f"Argument '{min(unknown)}' is not supported by our API.")
    model = VOYAGE_MODELS.get(body["model"])
    if model is None:
        raise ApiError(
            400, f"Model {body['model']} is not supported. Supported models are {[*VOYAGE_MODELS]}."
        )
    _refuse_options(body, model)
    texts = _texts(body)
    dimension = body.get("output_dimension") or model.dimension
    cut, counts = _within(texts, model, options, truncation=body.get("truncation", True))
    if sum(counts) > model.request_tokens:
        raise ApiError(
            400,
            f"Request to model '{body['model']}' failed. The max allowed tokens per submitted "
            f"batch is {model.request_tokens}. Your batch has {sum(counts)} tokens after "
            "truncation. Please lower the number of tokens in the batch.",
        )
    if any(word in text for word in options.refused_words for text in texts):
        raise ApiError(400, "The input cannot be processed.")
    return Asked(cut, sum(counts), dimension, body)


def reply_body(asked: Asked) -> dict[str, Any]:
    """The reply to a request that was checked."""
    body = asked.body
    vectors = vectors_for(asked.texts, body["model"], asked.dimension, body.get("input_type") or "")
    kind = body.get("output_dtype") or "float"
    as_base64 = body.get("encoding_format") == "base64"
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "embedding": encoded(row, kind, as_base64=as_base64),
                "index": at,
            }
            for at, row in enumerate(vectors)
        ],
        "model": body["model"],
        "usage": {"total_tokens": asked.tokens},
    }


def _refuse_options(body: dict[str, Any], model: VoyageModel) -> None:
    if body.get("input_type") not in {None, "query", "document"}:
        raise ApiError(400, "input_type must be null, 'query' or 'document'.")
    if not isinstance(body.get("truncation", True), bool):
        raise ApiError(400, "truncation must be a boolean.")
    if body.get("encoding_format") not in {None, "base64"}:
        raise ApiError(400, "encoding_format must be null or 'base64'.")
    if body.get("output_dimension") not in {None, *model.dimensions}:
        raise ApiError(400, f"output_dimension must be one of {list(model.dimensions)}.")
    types = {None, *_TYPES} if model.quantised else {None, "float"}
    if body.get("output_dtype") not in types:
        raise ApiError(400, "The output_dtype is not supported by this model.")


def _texts(body: dict[str, Any]) -> list[str]:
    given: Any = body["input"]
    texts: list[str] = given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) and text for text in texts) or not texts:
        raise ApiError(400, "Input cannot contain empty strings or empty lists.")
    if len(texts) > MOST_INPUTS:
        raise ApiError(400, f"The batch size limit is {MOST_INPUTS}, not {len(texts)}.")
    return texts


def _within(
    texts: list[str], model: VoyageModel, options: ServerOptions, *, truncation: bool
) -> tuple[list[str], list[int]]:
    counts = [options.count_tokens(text) for text in texts]
    if max(counts) <= model.window:
        return texts, counts
    if not truncation:
        raise ApiError(
            400,
            f"The example at index {counts.index(max(counts))} has too many tokens and does "
            f"not fit into the model's context window of {model.window} tokens.",
        )
    counter = TokenEstimate()
    cut = [
        counter.cut(text, model.window) if count > model.window else text
        for text, count in zip(texts, counts, strict=True)
    ]
    return cut, [min(count, model.window) for count in counts]
