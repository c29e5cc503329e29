"""OpenAI's result files: lines to outcomes, in blocks, so that checks work on whole arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from embedmill.batch_provider import NO_CREDIT, FailureClass, RowFailure, RowOutcome
from embedmill.json_numbers import NumbersItem, numbers_line
from embedmill.openai_replies import detail_of_record
from embedmill.openai_vectors import (
    AS_SENT,
    EmbeddingBody,
    EmbeddingItem,
    VectorForm,
    WireBody,
    decode_lenient,
    decoded,
)
from embedmill.recipe import EmbeddingRecipe
from embedmill.redaction import redacted

# Of a request that was executed and refused for what it holds; all else is not the row's fault.
_PERMANENT = frozenset({400, 413, 422})
_EXPIRED = "batch_expired"


class _Response(msgspec.Struct):
    status_code: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")
    # Voyage's, of a request that failed; it has no body then.
    message: str = ""


class _Line(msgspec.Struct):
    custom_id: str | None = None
    response: _Response | None = None
    error: object = None


class _GoodResponse(msgspec.Struct):
    status_code: int
    body: WireBody


class _GoodLine(msgspec.Struct):
    """A line that succeeded, read in one pass."""

    custom_id: str
    response: _GoodResponse
    error: None = None


_decode_good = msgspec.json.Decoder(_GoodLine).decode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_body = msgspec.json.Decoder(WireBody).decode


@dataclass(frozen=True, slots=True)
class _Request:
    """A line that succeeded."""

    custom_id: str | None
    body: EmbeddingBody


def lines_of(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Whole lines, as many as each chunk completes; blank ones are left out."""
    rest: list[bytes] = []
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            yield _whole(b"".join((*rest, chunk[:end])))
            rest = []
        rest.append(chunk[end:])
    yield _whole(b"".join(rest))


def outcomes_of(
    lines: Iterable[bytes], recipe: EmbeddingRecipe, form: VectorForm = AS_SENT
) -> Iterator[RowOutcome]:
    """The outcomes of some lines of an output or an error file, checked against the recipe.

    A request succeeded when its response has status 200, its body holds vectors and nothing beside
    it speaks of an error: failed requests have no error at the top when they were executed.
    """
    requests: list[_Request] = []
    for line in lines:
        result = _result_of(line)
        if isinstance(result, RowOutcome):
            yield result
        else:
            requests.append(result)
    yield from _vectors(requests, recipe, form)


def _vectors(
    requests: list[_Request], recipe: EmbeddingRecipe, form: VectorForm
) -> Iterator[RowOutcome]:
    items: list[EmbeddingItem | NumbersItem] = []
    for request in requests:
        items += request.body.data
    result = decoded(items, recipe, form)
    starts = accumulate((len(request.body.data) for request in requests), initial=0)
    for start, request in zip(starts, requests, strict=False):
        for offset, item in enumerate(request.body.data):
            failure = result.failures.get(start + offset)
            yield RowOutcome(
                request.custom_id,
                item.index,
                vector=None if failure else result.vectors[start + offset],
                failure=RowFailure("permanent", failure.code, str(failure)) if failure else None,
                tokens=request.body.tokens if offset == 0 else 0,
            )


def _result_of(line: bytes) -> _Request | RowOutcome:
    return _succeeded(line) or _looked_into(line)


def _succeeded(line: bytes) -> _Request | None:
    """A line that is beyond doubt; None for all others, which are looked into."""
    numbers = numbers_line(line)
    if numbers is not None:
        custom_id, body = numbers[0], EmbeddingBody.of_numbers(numbers[1:])
    else:
        try:
            good = _decode_good(line)
        except msgspec.DecodeError:
            return None
        custom_id = good.custom_id
        body = EmbeddingBody.of(good.response.body) if good.response.status_code == 200 else None
    return _Request(custom_id, body) if body is not None and body.data else None


def _looked_into(line: bytes) -> _Request | RowOutcome:
    try:
        record = decode_lenient(line, _decode_line, _Line)
    except ValueError as error:
        return _failed(None, "retryable", "malformed-line", redacted(str(error)))
    if record.response is None:
        return _not_executed(record)
    if record.response.status_code != 200:
        return _refused(record.custom_id, record.response)
    if record.error is not None:
        return _failed(
            record.custom_id, "retryable", "contradictory", "both a response and an error"
        )
    return _executed(record.custom_id, record.response)


def _executed(custom_id: str | None, response: _Response) -> _Request | RowOutcome:
    try:
        body = EmbeddingBody.of(_decode_body(response.body))
    except ValueError as error:
        return _failed(custom_id, "retryable", "malformed-body", redacted(str(error)))
    if not body.data:
        return _failed(custom_id, "retryable", "no-vectors", "the response holds no vectors")
    return _Request(custom_id, body)


def _not_executed(record: _Line) -> RowOutcome:
    if record.error is None:
        return _failed(record.custom_id, "retryable", "no-response", "no response and no error")
    detail = detail_of_record(record.error)
    kind: FailureClass = "expired" if detail.code == _EXPIRED else "retryable"
    code = NO_CREDIT if detail.unpaid() else detail.code or "not-executed"
    return _failed(record.custom_id, kind, code, detail.message)


def _refused(custom_id: str | None, response: _Response) -> RowOutcome:
    status = response.status_code
    body = msgspec.json.decode(response.body)
    detail = detail_of_record({"message": response.message} if body is None else body)
    message = f"{status}: {detail.message}"
    if detail.unpaid(status):
        return _failed(custom_id, "retryable", NO_CREDIT, message)
    kind: FailureClass = "permanent" if status in _PERMANENT else "retryable"
    return _failed(custom_id, kind, detail.code or f"http-{status}", message)


def _failed(custom_id: str | None, kind: FailureClass, code: str, message: str) -> RowOutcome:
    return RowOutcome(custom_id, None, failure=RowFailure(kind, code, message))


def _whole(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line and not line.isspace()]
