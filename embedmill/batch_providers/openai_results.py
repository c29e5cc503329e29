"""OpenAI's result files: lines to outcomes, in blocks, so that checks work on whole arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from embedmill.batch_provider import FailureClass, RowFailure, RowOutcome
from embedmill.openai_replies import detail_of_record
from embedmill.openai_vectors import EmbeddingBody, EmbeddingItem, decode_lenient, decoded
from embedmill.recipe import EmbeddingRecipe
from embedmill.redaction import redacted

# Of a request that was executed and refused for what it holds; all else is not the row's fault.
_PERMANENT = frozenset({400, 413, 422})
_EXPIRED = "batch_expired"


class _Response(msgspec.Struct):
    status_code: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct):
    custom_id: str | None = None
    response: _Response | None = None
    error: object = None


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_body = msgspec.json.Decoder(EmbeddingBody).decode


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


def outcomes_of(lines: Iterable[bytes], recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
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
    yield from _vectors(requests, recipe)


def _vectors(requests: list[_Request], recipe: EmbeddingRecipe) -> Iterator[RowOutcome]:
    items: list[EmbeddingItem] = [item for request in requests for item in request.body.data]
    result = decoded(items, recipe)
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
        body = _decode_body(response.body)
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
    return _failed(record.custom_id, kind, detail.code or "not-executed", detail.message)


def _refused(custom_id: str | None, response: _Response) -> RowOutcome:
    detail = detail_of_record(msgspec.json.decode(response.body))
    kind: FailureClass = "permanent" if response.status_code in _PERMANENT else "retryable"
    code = detail.code or f"http-{response.status_code}"
    return _failed(custom_id, kind, code, f"{response.status_code}: {detail.message}")


def _failed(custom_id: str | None, kind: FailureClass, code: str, message: str) -> RowOutcome:
    return RowOutcome(custom_id, None, failure=RowFailure(kind, code, message))


def _whole(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line and not line.isspace()]
