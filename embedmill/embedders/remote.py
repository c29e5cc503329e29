"""Embedding through somebody else's server: packing, patience, blame; the same for all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from embedmill.batching import by_halves
from embedmill.embedder import EmbeddedTexts, Role, Vectors
from embedmill.embedders.endpoint import Answer, Endpoint
from embedmill.embedders.request_limits import LearnedLimits, RequestLimits
from embedmill.errors import (
    EmbedmillError,
    PermanentError,
    RateLimitedError,
    StopRunError,
    TransientError,
)
from embedmill.openai_replies import TOO_LARGE
from embedmill.openai_tokens import packing_counter
from embedmill.rate_limiter import RateLimiter, Turn
from embedmill.recipe import EmbeddingRecipe

log = logging.getLogger(__name__)
# Of one request, for troubles other than rate limits: 1, 2, 4 seconds between.
_TRIES = 4
# Texts that are counted at once.
_COUNTED = 256
# Threads, and connections, that read replies beside those that wait for one to begin.
READING = 2
# A text that no model refuses.
_HARMLESS = "text"


class _OverTheLimitError(PermanentError):
    """A request that can never be sent, whatever its texts say; parts of it can."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a provider is waited for.

    Attributes:
        patience_s: in all, for the rate limits of one request.
        sleep: waits for seconds.
        now: seconds since the epoch, for waits that a reply gives as a date.
    """

    patience_s: float = 600.0
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time


PATIENT = Waiting()


@dataclass(slots=True)
class _Rows:
    """What is known of the rows of one call so far; threads work on different rows."""

    role: Role
    texts: list[str]
    counts: list[int]
    vectors: Vectors
    failures: dict[int, PermanentError] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    truncated: int = 0


class RemoteEmbedder:
    """Sends texts in requests under all limits, several at a time. For several threads.

    Of calls that are made at a time the eldest sends first; a younger one sends while the last
    replies of its elders are waited for, so that as many requests are under way as may be.

    What a request was charged for is not lost to a passing trouble of the next: each is repeated
    by itself, when ``limiter`` permits it: rate limits for as long as there is patience, other
    troubles three times. A refused request is halved until the refused text is alone. Blank texts
    are never sent; texts over the window are cut to it and counted.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        recipe: EmbeddingRecipe,
        limits: RequestLimits,
        limiter: RateLimiter,
        waiting: Waiting = PATIENT,
    ) -> None:
        self.recipe = recipe
        self._endpoint = endpoint
        self._limits = LearnedLimits(limits)
        self._under_way = limits.under_way
        self._counter = packing_counter(limits.tokenizer)
        self._limiter = limiter
        self._waiting = waiting
        # A reply that is being read keeps no request waiting: there are threads for that beside.
        self._wire = threading.BoundedSemaphore(limits.under_way)
        self._threads = ThreadPoolExecutor(
            limits.under_way + READING, thread_name_prefix="embedding"
        )
        # Held by the call that hands its requests to the threads: the eldest that has some left.
        self._sending = threading.Lock()
        self._room = threading.Semaphore(limits.under_way + READING)
        self._proved = False
        self._proving = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(cancel_futures=True)
        self._endpoint.close()

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; see :class:`~embedmill.embedder.Embedder`.

        Raises:
            RateLimitedError: the server asks for more patience than there is.
        """
        vectors = np.empty((len(texts), self.recipe.dimension), np.float32)
        rows = _Rows(role, list(texts), [0] * len(texts), vectors)
        groups: Iterable[list[int]] = self._groups(rows)
        if self._limiter.limits.need_totals:
            # What cannot be paid for as a whole is not begun.
            groups = list(groups)
        turn = self._limiter.turn(sum(rows.counts), sum(count > 0 for count in rows.counts))
        self._all(partial(self._group, turn, rows), rows, groups)
        rows.vectors[list(rows.failures)] = np.nan
        return EmbeddedTexts(rows.vectors, rows.failures, sum(rows.tokens), rows.truncated)

    def _groups(self, rows: _Rows) -> Iterator[list[int]]:
        """Rows of one request after the other, each as full as it can be without looking ahead.

        Texts are counted as they are wanted: requests go out meanwhile.
        """
        most, most_texts = self._most()
        group: list[int] = []
        tokens = 0
        for row in self._counted(rows):
            # A text that exceeds a request alone is sent as well: ours is an estimate.
            if group and (len(group) >= most_texts or tokens + rows.counts[row] > most):
                yield group
                group, tokens = [], 0
                # The server may have shown meanwhile that it takes less, or more.
                most, most_texts = self._most()
            group.append(row)
            tokens += rows.counts[row]
        if group:
            yield group

    def _most(self) -> tuple[int, int]:
        """Tokens and texts of one request."""
        limits = self._limits.next()
        return (
            self._limiter.tokens_per_request(limits.tokens),
            self._limiter.inputs_per_request(limits.texts),
        )

    def _counted(self, rows: _Rows) -> Iterator[int]:
        """Rows that are sent, in order; their texts counted, and cut to the window."""
        recipe = self.recipe
        prompt = recipe.document_prompt if rows.role == "document" else recipe.query_prompt
        for start in range(0, len(rows.texts), _COUNTED):
            some = []
            for row in range(start, min(start + _COUNTED, len(rows.texts))):
                failure = _unsendable(rows.texts[row])
                if failure is None:
                    rows.texts[row] = prompt + rows.texts[row]
                    some.append(row)
                else:
                    rows.failures[row] = failure
            yield from self._fitted(rows, some)

    def _fitted(self, rows: _Rows, some: Sequence[int]) -> Sequence[int]:
        """Count the texts of some rows, and cut those over the window."""
        window = self.recipe.max_tokens
        counts = self._counter.count([rows.texts[row] for row in some])
        for row, count in zip(some, counts, strict=True):
            rows.counts[row] = min(count, window)
            if count > window:
                rows.texts[row] = self._counter.cut(rows.texts[row], window)
                rows.truncated += 1
        return some

    def _all(
        self,
        embed: Callable[[Sequence[int]], dict[int, PermanentError]],
        rows: _Rows,
        groups: Iterable[Sequence[int]],
    ) -> None:
        """Embed all groups.

        Raises:
            EmbedmillError: the gravest that went wrong; no request is under way any more.
        """
        if self._under_way == 1:
            with self._sending:
                for group in groups:
                    rows.failures |= embed(group)
            return
        with self._sending:
            running = self._begun(embed, groups)
        wait(running)
        for found in [future.result() for future in _worst_first(running)]:
            rows.failures |= found

    def _begun(
        self,
        embed: Callable[[Sequence[int]], dict[int, PermanentError]],
        groups: Iterable[Sequence[int]],
    ) -> list[Future[dict[int, PermanentError]]]:
        """Embed all groups in threads, until one fails.

        Groups are made as there are threads for them. Counting texts is work of the interpreter
        alone: done all at once, it keeps requests from going out and replies from being noticed.
        One call at a time does so; the others wait.
        """
        failed = threading.Event()
        running: list[Future[dict[int, PermanentError]]] = []

        def ended(future: Future[dict[int, PermanentError]]) -> None:
            if future.exception() is not None:
                failed.set()
            self._room.release()

        for group in groups:
            self._room.acquire()
            if failed.is_set():
                self._room.release()
                break
            running.append(self._threads.submit(embed, group))
            running[-1].add_done_callback(ended)
            # The interpreter is its thread's now, not when the next texts are counted: the first
            # request of a call goes out after 3 ms, not 8.
            time.sleep(0)
        return running

    def _group(self, turn: Turn, rows: _Rows, group: Sequence[int]) -> dict[int, PermanentError]:
        refused: list[Sequence[int]] = []

        def request(chosen: Sequence[int]) -> None:
            try:
                self._request(turn, rows, chosen)
            except PermanentError:
                refused.append(chosen)
                raise

        failures = by_halves(group, request)
        if refused and not failures:
            self._ask_for_less(rows, min(refused, key=len))
        return failures

    def _ask_for_less(self, rows: _Rows, refused: Sequence[int]) -> None:
        """Let requests be smaller than one that was refused while each of its texts was taken."""
        tokens = sum(rows.counts[row] for row in refused)
        if self._limits.refused(len(refused), tokens):
            told = "one request with %d texts of %d tokens was too much; the next are smaller"
            log.warning(told, len(refused), tokens)

    def _request(self, turn: Turn, rows: _Rows, chosen: Sequence[int]) -> None:
        """Embed some rows in one request.

        Raises:
            PermanentError: the server refuses them; none of them was embedded.
        """
        expected = sum(rows.counts[row] for row in chosen)
        try:
            texts = [rows.texts[row] for row in chosen]
            answer = self._patiently(turn, texts, rows.role, expected)
        except _OverTheLimitError:
            raise
        except PermanentError:
            rows.tokens.append(self._prove(turn, rows.role))
            raise
        self._proved = True
        self._limits.taken(len(chosen), expected)
        rows.vectors[_plain(chosen)] = answer.vectors
        for position, failure in answer.failures.items():
            rows.failures[chosen[position]] = failure
        rows.tokens.append(answer.tokens or expected)

    def _prove(self, turn: Turn, role: Role) -> int:
        """Make sure, once, that the server takes any text at all; the tokens that it took.

        Raises:
            StopRunError: it takes none. Without this each text would be sent alone in the end, and
                blamed for what is wrong with the settings.
        """
        with self._proving:
            if self._proved:
                return 0
            try:
                answer = self._patiently(turn, [_HARMLESS], role, 1)
            except PermanentError as error:
                raise StopRunError(
                    f"the server refuses every text: {error}",
                    code="embedder-settings",
                    hint="check the embedder's settings",
                ) from error
            self._proved = True
            return answer.tokens

    def _patiently(self, turn: Turn, texts: Sequence[str], role: Role, tokens: int) -> Answer:
        waited, troubles = 0.0, 0
        # Before its turn: the provider has nothing to do while a request is written out.
        send = self._endpoint.request(texts, role)
        while True:
            self._require_smaller(texts, tokens)
            with ExitStack() as wire:
                wire.enter_context(self._wire)
                permit = turn.acquire(tokens, len(texts))
                try:
                    reply = send()
                    # The provider is done with it: another one may be sent meanwhile.
                    wire.close()
                    answer = self._endpoint.answer(reply, texts)
                except RateLimitedError as error:
                    # The next permit waits that long.
                    waited += permit.throttled(error.retry_after)
                    self._require_patience(waited, error)
                except TransientError:
                    permit.lost()
                    troubles += 1
                    if troubles == _TRIES:
                        raise
                    self._waiting.sleep(2.0 ** (troubles - 1))
                except EmbedmillError:
                    permit.settle(0)
                    raise
                else:
                    permit.settle(answer.tokens or None)
                    return answer

    def _require_patience(self, waited: float, error: RateLimitedError) -> None:
        """Go on only where waiting helps."""
        if error.code == TOO_LARGE:
            raise _OverTheLimitError(str(error), code=TOO_LARGE) from error
        if waited > self._waiting.patience_s:
            raise error

    def _require_smaller(self, texts: Sequence[str], tokens: int) -> None:
        """Have a request halved that has more tokens than the account may send in a minute.

        Raises:
            _OverTheLimitError: it has; replies have told so since it was put together.
        """
        limit = self._limiter.limits.tokens
        if limit is not None and tokens > limit and len(texts) > 1:
            raise _OverTheLimitError(f"{tokens:,} tokens; {limit:,} may be sent in a minute")


def _worst_first(
    futures: Sequence[Future[dict[int, PermanentError]]],
) -> list[Future[dict[int, PermanentError]]]:
    """What ends the run comes before what may be tried again, and that before what went well."""

    def rank(future: Future[dict[int, PermanentError]]) -> int:
        error = future.exception()
        if error is None:
            return 2
        return int(isinstance(error, EmbedmillError) and not isinstance(error, StopRunError))

    return sorted(futures, key=rank)


def _plain(rows: Sequence[int]) -> slice | Sequence[int]:
    """Ascending rows, as a slice where none is left out: other threads run while it is copied."""
    whole = rows[-1] - rows[0] + 1 == len(rows)
    return slice(rows[0], rows[-1] + 1) if whole else rows


def _unsendable(text: str) -> PermanentError | None:
    if not text or text.isspace():
        return PermanentError("the text is blank", code="blank")
    if not _is_unicode(text):
        return PermanentError("the text is not Unicode", code="encoding")
    return None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
