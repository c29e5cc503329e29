"""The embedder of OpenAI and of servers that speak its language, one request at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import httpx2
import numpy as np
import openai

from embedmill.batching import by_halves, pack
from embedmill.embedder import EmbeddedTexts, Role, Vectors
from embedmill.errors import (
    EmbedmillError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.openai_replies import ErrorReply, error_of
from embedmill.openai_settings import OpenAIEmbedderSettings, asked_dimensions
from embedmill.openai_tokens import packing_counter
from embedmill.openai_vectors import EmbeddingBody, decode_body, decoded
from embedmill.rate_limiter import RateLimiter, Turn
from embedmill.recipe import EmbeddingRecipe
from embedmill.redaction import redacted
from embedmill.settings_file import resolve_secret

# Seconds to reach the server; it then has as long as the settings say.
_CONNECT_S = 5
# Of one request, for troubles other than rate limits: 1, 2, 4 seconds between.
_TRIES = 4
# A text that no model refuses.
_HARMLESS = "text"


@dataclass(slots=True)
class _Rows:
    """What is known of the rows of one call so far."""

    texts: list[str]
    counts: list[int]
    vectors: Vectors
    failures: dict[int, PermanentError] = field(default_factory=dict)
    tokens: int = 0


class OpenAIEmbedder:
    """Sends texts in requests under three limits, and places vectors by the index of the reply.

    What a request was charged for is not lost to a passing trouble of the next: each is repeated
    by itself, when ``limiter`` permits it: rate limits for as long as ``patience_s`` in all, other
    troubles three times. A
    refused request is halved until the refused text is alone. Blank texts are never sent; texts
    over the window are cut to it and counted.
    """

    def __init__(
        self,
        settings: OpenAIEmbedderSettings,
        recipe: EmbeddingRecipe,
        *,
        limiter: RateLimiter,
        patience_s: float = 600.0,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.recipe = recipe
        self._settings = settings
        self._counter = packing_counter(settings.tokenizer)
        self._patience_s = patience_s
        self._sleep = sleep
        self._now = now
        self._limiter = limiter
        self._proved = False
        # The SDK would repeat what must stop the run, and sleep by its own clock.
        self._client = openai.OpenAI(
            api_key=resolve_secret(settings.api_key),
            base_url=settings.base_url,
            timeout=httpx2.Timeout(settings.timeout_s, connect=_CONNECT_S),
            max_retries=0,
        )
        dimensions = asked_dimensions(recipe.model, recipe.dimension)
        self._create = partial(
            self._client.embeddings.with_raw_response.create,
            model=recipe.model,
            encoding_format=settings.encoding_format,
            dimensions=openai.omit if dimensions is None else dimensions,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; see :class:`~embedmill.embedder.Embedder`.

        Raises:
            RateLimitedError: the server asks for more patience than there is.
        """
        prompt = self.recipe.document_prompt if role == "document" else self.recipe.query_prompt
        vectors = np.full((len(texts), self.recipe.dimension), np.nan, np.float32)
        rows = _Rows([prompt + text for text in texts], [0] * len(texts), vectors)
        rows.failures |= _unsendable(texts)
        sent = [row for row in range(len(texts)) if row not in rows.failures]
        truncated = self._fit(rows, sent)
        turn = self._limiter.turn(sum(rows.counts))
        for group in pack(
            len(sent),
            most_rows=self._settings.inputs_per_request,
            sizes={"tokens": [rows.counts[row] for row in sent]},
            limits={"tokens": self._limiter.tokens_per_request(self._settings.tokens_per_request)},
        ):
            # A text that exceeds a request alone is sent as well: ours is an estimate.
            chosen = [sent[at] for at in group.rows]
            rows.failures |= by_halves(chosen, partial(self._request, turn, rows))
        return EmbeddedTexts(rows.vectors, rows.failures, rows.tokens, truncated)

    def _fit(self, rows: _Rows, sent: Sequence[int]) -> int:
        """Count the texts, and cut those over the window; how many these are."""
        window, truncated = self.recipe.max_tokens, 0
        for row, count in zip(
            sent, self._counter.count([rows.texts[row] for row in sent]), strict=True
        ):
            rows.counts[row] = min(count, window)
            if count > window:
                rows.texts[row] = self._counter.cut(rows.texts[row], window)
                truncated += 1
        return truncated

    def _request(self, turn: Turn, rows: _Rows, chosen: Sequence[int]) -> None:
        """Embed some rows in one request.

        Raises:
            PermanentError: the server refuses them; none of them was embedded.
        """
        expected = sum(rows.counts[row] for row in chosen)
        try:
            body = self._patiently(turn, [rows.texts[row] for row in chosen], expected)
        except PermanentError:
            rows.tokens += self._prove(turn)
            raise
        self._proved = True
        result = decoded(body.data, self.recipe)
        for position, item in enumerate(body.data):
            row = chosen[item.index]
            rows.vectors[row] = result.vectors[position]
            if position in result.failures:
                rows.failures[row] = result.failures[position]
        rows.tokens += body.tokens or expected

    def _prove(self, turn: Turn) -> int:
        """Make sure, once, that the server takes any text at all; the tokens that it took.

        Raises:
            StopRunError: it takes none. Without this each text would be sent alone in the end, and
                blamed for what is wrong with the settings.
        """
        if self._proved:
            return 0
        try:
            body = self._patiently(turn, [_HARMLESS], 1)
        except PermanentError as error:
            raise StopRunError(
                f"the server refuses every text: {error}",
                code="embedder-settings",
                hint="check the embedder's settings",
            ) from error
        self._proved = True
        return body.tokens

    def _patiently(self, turn: Turn, texts: list[str], tokens: int) -> EmbeddingBody:
        waited, troubles = 0.0, 0
        while True:
            permit = turn.acquire(tokens)
            try:
                body = self._once(texts)
            except RateLimitedError as error:
                # The next permit waits that long.
                waited += permit.throttled(error.retry_after)
                if waited > self._patience_s:
                    raise
            except TransientError:
                permit.lost()
                troubles += 1
                if troubles == _TRIES:
                    raise
                self._sleep(2.0 ** (troubles - 1))
            except EmbedmillError:
                permit.settle(0)
                raise
            else:
                permit.settle(body.tokens or None)
                return body

    def _once(self, texts: list[str]) -> EmbeddingBody:
        doing = f"embedding {len(texts)} texts"
        try:
            reply = self._create(input=texts)
        except openai.APIStatusError as error:
            raise self._meaning(error, doing) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise TransientError(
                redacted(f"{doing}: {type(cause).__name__}: {cause}"), code="connection"
            ) from error
        try:
            body = decode_body(reply.content)
        except ValueError as error:
            raise TransientError(
                f"{doing}: the reply cannot be read: {error}", code="unreadable-reply"
            ) from error
        if sorted(item.index for item in body.data) != list(range(len(texts))):
            raise TransientError(
                f"{doing}: {len(body.data)} vectors came back, or not one for each text",
                code="short-reply",
            )
        return body

    def _meaning(self, error: openai.APIStatusError, doing: str) -> EmbedmillError:
        headers = {name.lower(): value for name, value in error.response.headers.items()}
        reply = ErrorReply(error.status_code, headers, error.response.content)
        meaning = error_of(reply, doing=doing, now=self._now())
        if isinstance(meaning, RefusedError):
            # No such address: not one text could ever be embedded.
            return StopRunError(
                str(meaning), code="embedder-settings", hint="check embedder.base_url"
            )
        return meaning


def _unsendable(texts: Sequence[str]) -> dict[int, PermanentError]:
    failures: dict[int, PermanentError] = {}
    for row, text in enumerate(texts):
        if not text or text.isspace():
            failures[row] = PermanentError("the text is blank", code="blank")
        elif not _is_unicode(text):
            failures[row] = PermanentError("the text is not Unicode", code="encoding")
    return failures


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
