"""The endpoint of OpenAI and of all that speak its language, Voyage too: vectors by index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embedmill.embedder import Role
from embedmill.embedders.endpoint import Answer, Pending
from embedmill.embedders.json_requests import JsonRequests, OpenReply
from embedmill.errors import TransientError
from embedmill.openai_vectors import AS_SENT, VectorForm, decode_body, decoded
from embedmill.plain_numbers import number_of
from embedmill.recipe import EmbeddingRecipe


class IndexedEndpoint:
    """Places vectors by their index, never by their position."""

    def __init__(
        self,
        requests: JsonRequests,
        recipe: EmbeddingRecipe,
        body: Mapping[str, Any],
        form: VectorForm = AS_SENT,
    ) -> None:
        """Ask for vectors.

        Args:
            requests: posts to the address.
            recipe: of the vectors.
            body: of every request, without the texts and without their input type.
            form: of the vectors that come.
        """
        self._requests = requests
        self._recipe = recipe
        self._body = body
        self._form = form

    def request(self, texts: Sequence[str], role: Role) -> Callable[[], OpenReply]:
        """See :class:`~embedmill.embedders.endpoint.Endpoint`."""
        told = self._recipe.input_type(role)
        body = {**self._body, "input": texts} | ({"input_type": told} if told else {})
        return self._requests.request(body, doing=_doing(texts))

    def answer(self, reply: Pending, texts: Sequence[str]) -> Answer:
        """See :class:`~embedmill.embedders.endpoint.Endpoint`."""
        with reply.read() as content:
            return self._answer(content, texts)

    def _answer(self, content: memoryview, texts: Sequence[str]) -> Answer:
        try:
            body = decode_body(content)
        except ValueError as error:
            raise TransientError(
                f"{_doing(texts)}: the reply cannot be read: {error}", code="unreadable-reply"
            ) from error
        items = sorted(body.data, key=lambda item: item.index)
        if [item.index for item in items] != list(range(len(texts))):
            raise TransientError(
                f"{_doing(texts)}: {number_of(len(items), 'vector')} came back, not one for each",
                code="short-reply",
            )
        found = decoded(items, self._recipe, self._form)
        return Answer(found.vectors, found.failures, body.tokens)

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()


def _doing(texts: Sequence[str]) -> str:
    return f"embedding {number_of(len(texts), 'text')}"
