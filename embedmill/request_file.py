"""Files of requests for an embedding job: written under every limit, checked line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import orjson

from embedmill.batch_provider import BatchLimits, RequestFile
from embedmill.errors import PermanentError, RefusedError

_ID, _INPUT = "\ue000id", "\ue000input"


class LineTemplate(Protocol):
    """How a request is written as a line, and read again."""

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """What stands before the id, between id and texts, and after the texts; a line's end."""
        ...

    def encoded(self, texts: Sequence[str]) -> bytes:
        """The texts as JSON.

        Raises:
            TypeError: one is not Unicode.
        """
        ...

    def split(self, line: bytes) -> tuple[object, object]:
        """The id and the texts of a line.

        Raises:
            ValueError: it is no such line.
        """
        ...


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """What all lines of a file have in common.

    Only the id and the texts of a line go through the JSON encoder: five times as fast as encoding
    each line as a whole (1.1 million lines a second).

    Attributes:
        constant: a line without its ``custom_id`` and without the texts of its body.
        texts: name of these.
    """

    constant: Mapping[str, Any]
    texts: str = "input"

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """What stands before the id, between id and texts, and after the texts; a line's end."""
        body = {**self.constant["body"], self.texts: _INPUT}
        line = orjson.dumps({"custom_id": _ID, **self.constant, "body": body})
        before, rest = line.split(orjson.dumps(_ID))
        between, after = rest.split(orjson.dumps(_INPUT))
        return before, between, after + b"\n"

    def encoded(self, texts: Sequence[str]) -> bytes:
        """The texts as JSON; TypeError when one is not Unicode."""
        return orjson.dumps(texts)

    def split(self, line: bytes) -> tuple[object, object]:
        """The id and the texts of a line.

        Raises:
            ValueError: it is not JSON, or the rest of it is not the constant part.
        """
        record = orjson.loads(line)
        if not isinstance(record, dict) or not isinstance(record.get("body"), dict):
            raise ValueError("no object with a body")  # noqa: TRY004, the value is what is wrong
        custom_id, texts = record.pop("custom_id", None), record["body"].pop(self.texts, None)
        for name in sorted(record.keys() | self.constant.keys()):
            if record.get(name) != self.constant.get(name):
                raise ValueError(
                    f"{name} is {record.get(name)!r}, it should be {self.constant.get(name)!r}"
                )
        return custom_id, texts


class RequestWriter:
    """Writes one file, line by line, under the provider's limits.

    The file is complete only after :meth:`finish`; it is neither synced nor renamed: a killed
    process leaves a part of it, and whoever needs it durable copies it to where it lasts.
    """

    def __init__(
        self, path: Path, *, job_key: str, template: LineTemplate, limits: BatchLimits
    ) -> None:
        self._path = path
        self._job_key = job_key
        self._template = template
        self._before, self._between, self._after = template.parts()
        self._limits = limits
        self._file: BinaryIO = path.open("wb", buffering=1 << 20)
        self._digest = blake2b(digest_size=16)
        self._ids: set[str] = set()
        self._inputs = self._bytes = self._tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, custom_id: str, texts: Sequence[str], tokens: Sequence[int]) -> bool:
        """Write a request.

        Args:
            custom_id: unique in the file; short, printable ASCII.
            texts: one or more, none of them blank.
            tokens: of each text.

        Returns:
            False: the file has no room for it, nothing was written, start the next file.

        Raises:
            PermanentError: no file has room for it: too many texts or tokens, or a blank text.
            ValueError: the id was used before, or is not of the form.
        """
        self._refuse_id(custom_id)
        _refuse_request(texts, tokens, self._limits)
        line = b"".join(
            (
                self._before,
                orjson.dumps(custom_id),
                self._between,
                self._encoded(texts),
                self._after,
            )
        )
        if not self._has_room(len(texts), len(line), sum(tokens)):
            if not self._ids:
                raise PermanentError(
                    f"a request of {len(texts)} texts and {len(line)} bytes exceeds the limits of "
                    "a whole file",
                    code="too-large",
                )
            return False
        self._file.write(line)
        self._digest.update(line)
        self._ids.add(custom_id)
        self._inputs += len(texts)
        self._bytes += len(line)
        self._tokens += sum(tokens)
        return True

    def finish(self) -> RequestFile:
        """Close the file and say what is in it."""
        self._file.close()
        return RequestFile(
            path=self._path,
            job_key=self._job_key,
            fingerprint=self._digest.hexdigest(),
            requests=len(self._ids),
            inputs=self._inputs,
            bytes=self._bytes,
            tokens=self._tokens,
        )

    def _encoded(self, texts: Sequence[str]) -> bytes:
        try:
            return self._template.encoded(texts)
        except TypeError as error:
            raise PermanentError(f"the text is not Unicode: {error}", code="encoding") from error

    def _refuse_id(self, custom_id: str) -> None:
        problem = _id_problem(custom_id, self._limits)
        if problem or custom_id in self._ids:
            raise ValueError(f"custom id {custom_id!r}: {problem or 'used twice'}")

    def _has_room(self, inputs: int, size: int, tokens: int) -> bool:
        limits = self._limits
        return (
            _within(len(self._ids) + 1, limits.requests_per_file)
            and _within(self._inputs + inputs, limits.inputs_per_file)
            and _within(self._bytes + size, limits.bytes_per_file)
            and _within(self._tokens + tokens, limits.enqueued_tokens)
        )


def lint(path: Path, template: LineTemplate, limits: BatchLimits) -> list[str]:
    """Check a finished file as its provider will, and all of it: providers name one line only.

    Written apart from the writer on purpose. Memory: one line, and all ids.

    Returns:
        One line per problem, at most 20 of them; empty when the file may be sent.
    """
    problems: list[str] = []
    for problem in _problems(path, template, limits):
        problems.append(problem)
        if len(problems) == 20:
            break
    return problems


def require_clean(path: Path, template: LineTemplate, limits: BatchLimits) -> None:
    """Refuse a file with problems.

    Raises:
        RefusedError: with the first problems of :func:`lint`.
    """
    problems = lint(path, template, limits)
    if problems:
        raise RefusedError(
            f"{path.name} is no file of requests: {'; '.join(problems[:3])}", code="request-file"
        )


def _problems(path: Path, template: LineTemplate, limits: BatchLimits) -> Iterator[str]:
    size = path.stat().st_size
    if not _within(size, limits.bytes_per_file):
        yield f"{size} bytes, {limits.bytes_per_file} are allowed"
    ids: set[str] = set()
    number = inputs = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                custom_id, texts = template.split(line)
            except ValueError as error:
                yield f"line {number}: {error}"
                continue
            inputs += len(texts) if isinstance(texts, list) else 1
            yield from (f"line {number}: {said}" for said in _line_problems(texts, limits))
            said = _id_problem(custom_id, limits) or ("used twice" if custom_id in ids else "")
            if said:
                yield f"line {number}: custom id {custom_id!r}: {said}"
            ids.add(str(custom_id))
    if not number:
        yield "the file is empty"
    if not _within(number, limits.requests_per_file):
        yield f"{number} lines, {limits.requests_per_file} are allowed"
    if not _within(inputs, limits.inputs_per_file):
        yield f"{inputs} texts, {limits.inputs_per_file} are allowed"


def _line_problems(texts: object, limits: BatchLimits) -> Iterator[str]:
    if not isinstance(texts, list) or not texts:
        yield "the input is not a list of texts"
        return
    if not _within(len(texts), limits.inputs_per_request):
        yield f"{len(texts)} texts, {limits.inputs_per_request} are allowed"
    if not all(isinstance(text, str) and not _blank(text) for text in texts):
        yield "a blank text"


def _refuse_request(texts: Sequence[str], tokens: Sequence[int], limits: BatchLimits) -> None:
    if len(texts) != len(tokens) or not texts:
        raise ValueError(f"{len(texts)} texts with {len(tokens)} token counts")
    if any(_blank(text) for text in texts):
        raise PermanentError("a blank text is never sent", code="blank")
    for name, value, limit in (
        ("texts", len(texts), limits.inputs_per_request),
        ("tokens", sum(tokens), limits.tokens_per_request),
        ("tokens in one text", max(tokens), limits.tokens_per_input),
    ):
        if not _within(value, limit):
            raise PermanentError(f"{value} {name}, a request takes {limit}", code="too-large")


def _id_problem(custom_id: object, limits: BatchLimits) -> str:
    if not isinstance(custom_id, str) or not custom_id:
        return "is missing"
    if not (custom_id.isascii() and custom_id.isprintable()):
        return "is not printable ASCII"
    if not _within(len(custom_id), limits.custom_id_bytes):
        return f"is longer than {limits.custom_id_bytes} bytes"
    return ""


def _blank(text: str) -> bool:
    return not text or text.isspace()


def _within(value: int, limit: int | None) -> bool:
    return limit is None or value <= limit
