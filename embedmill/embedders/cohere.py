"""The embedder of Cohere, API version 2.

Without Cohere's own client: that makes a Python float of every component, and it takes short
replies and NaN for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from embedmill.cohere_models import COHERE_MODELS
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.embedder import Role
from embedmill.embedders.connecting import bearer, connected, request_limits
from embedmill.embedders.endpoint import Answer, Pending
from embedmill.embedders.json_requests import JsonRequests, OpenReply
from embedmill.embedders.remote import PATIENT, RemoteEmbedder, Waiting
from embedmill.errors import TransientError
from embedmill.openai_vectors import EmbeddingItem, VectorForm, decode_lenient, decoded
from embedmill.plain_numbers import number_of
from embedmill.rate_limiter import RateLimiter
from embedmill.recipe import EmbeddingRecipe

# No version of Cohere's models is said to return norm 1, and version 3 of them does not always.
_FORM = VectorForm(renormalise=True)


class _Billed(msgspec.Struct):
    input_tokens: float = 0


class _Meta(msgspec.Struct):
    billed_units: _Billed | None = None


class CohereBody(msgspec.Struct):
    """A reply; unknown fields are let be.

    Attributes:
        embeddings: by their type; all in the order of the texts, there is no index.
        texts: that were embedded, as Cohere saw them.
        meta: with what was charged for.
    """

    embeddings: dict[str, list[msgspec.Raw]]
    texts: list[str] = []
    meta: _Meta | None = None

    @property
    def tokens(self) -> int:
        """Charged for; 0 where it is not said."""
        billed = self.meta.billed_units if self.meta else None
        return int(billed.input_tokens) if billed else 0


_decode = msgspec.json.Decoder(CohereBody).decode


class CohereEndpoint:
    """``/v2/embed``. Vectors have no index, but the texts come back with them."""

    def __init__(
        self, requests: JsonRequests, recipe: EmbeddingRecipe, body: dict[str, Any], wire_type: str
    ) -> None:
        """Ask for vectors.

        Args:
            requests: posts to the address.
            recipe: of the vectors.
            body: of every request, without the texts and their input type.
            wire_type: name of the vectors in a reply.
        """
        self._requests = requests
        self._recipe = recipe
        self._body = {**body, "embedding_types": [wire_type]}
        self._wire_type = wire_type

    def request(self, texts: Sequence[str], role: Role) -> Callable[[], OpenReply]:
        """See :class:`~embedmill.embedders.endpoint.Endpoint`."""
        told = self._recipe.input_type(role)
        body = {**self._body, "input_type": told, "texts": texts}
        return self._requests.request(body, doing=_doing(texts))

    def answer(self, reply: Pending, texts: Sequence[str]) -> Answer:
        """See :class:`~embedmill.embedders.endpoint.Endpoint`."""
        with reply.read() as content:
            return self._answer(content, texts)

    def _answer(self, content: memoryview, texts: Sequence[str]) -> Answer:
        try:
            body = decode_lenient(content, _decode, CohereBody)
        except ValueError as error:
            raise TransientError(
                f"{_doing(texts)}: the reply cannot be read: {error}", code="unreadable-reply"
            ) from error
        vectors = body.embeddings.get(self._wire_type, [])
        if len(vectors) != len(texts) or _mixed_up(texts, body.texts):
            raise TransientError(
                f"{_doing(texts)}: {number_of(len(vectors), 'vector')} came back, or in another "
                "order",
                code="short-reply",
            )
        items = [EmbeddingItem(row, vector) for row, vector in enumerate(vectors)]
        found = decoded(items, self._recipe, _FORM)
        return Answer(found.vectors, found.failures, body.tokens)

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()


def _doing(texts: Sequence[str]) -> str:
    return f"embedding {number_of(len(texts), 'text')}"


def _mixed_up(sent: Sequence[str], returned: Sequence[str]) -> bool:
    """Whether the same texts came back in another order. Changed texts prove nothing."""
    return list(returned) != list(sent) and sorted(returned) == sorted(sent)


def cohere_embedder(
    settings: CohereEmbedderSettings,
    recipe: EmbeddingRecipe,
    limiter: RateLimiter,
    waiting: Waiting = PATIENT,
) -> RemoteEmbedder:
    """Cohere's model of the recipe.

    Raises:
        SettingsError: the key is not set, or the address is none.
    """
    # Cohere would cut a text over the window and not say so.
    body: dict[str, Any] = {"model": recipe.model, "truncate": "NONE"}
    known = COHERE_MODELS.get(recipe.model)
    if settings.dimensions is not None and (known is None or known.shortens):
        body["output_dimension"] = settings.dimensions
    limits = request_limits(settings, settings.inputs_per_request, settings.tokens_per_request)
    requests = connected(settings, "/v2/embed", bearer(settings.api_key), limiter, waiting)
    wire_type = "base64" if settings.base64 else settings.vector_type
    endpoint = CohereEndpoint(requests, recipe, body, wire_type)
    return RemoteEmbedder(endpoint, recipe, limits, limiter, waiting)
