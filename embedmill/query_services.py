"""Whoever embeds queries for an index: a service by address, or a Python function by name."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import TypeAlias
from urllib import error, request

import numpy as np
import orjson

from embedmill.embedder import Vectors
from embedmill.errors import RefusedError, SettingsError, TransientError
from embedmill.plain_numbers import number_of
from embedmill.redaction import redacted

QueryService: TypeAlias = Callable[[Sequence[str]], list[Vectors]]
_TIMEOUT_S = 60.0
_FORMS = "an address (http://HOST:PORT/v1 or .../embed), or python:MODULE:FUNCTION"


def query_service(
    name: str, *, model: str, key_variable: str | None = None, one_by_one: bool = False
) -> QueryService:
    """What embeds queries, by how a person names it.

    Args:
        name: ``http://HOST/v1`` of a server that speaks OpenAI's language; an address that ends in
            ``/embed`` of one that takes ``{"inputs": [...]}`` and answers with a list of vectors
            (Text Embeddings Inference); ``python:MODULE:FUNCTION`` of a function from a list of
            texts to as many vectors.
        model: that a request names.
        key_variable: environment variable with the key of the server.
        one_by_one: the function or server takes one text at a time; a function then gets a string.

    Raises:
        SettingsError: the name has another form, or there is no such function.
    """
    if name.startswith("python:"):
        return _of_function(name, one_by_one=one_by_one)
    if name.startswith(("http://", "https://")):
        key = _key(key_variable)
        return lambda texts: _asked(name, texts, model, key, one_by_one=one_by_one)
    raise SettingsError(f"--embedder is {_FORMS}; not {name!r}")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if variable not in os.environ:
        raise SettingsError(f"the environment variable {variable} is not set")
    return os.environ[variable]


def _of_function(name: str, *, one_by_one: bool) -> QueryService:
    _, module_name, function_name = [*name.split(":", 2), "", ""][:3]
    if not module_name or not function_name:
        raise SettingsError(f"--embedder is {_FORMS}; not {name!r}")
    # As with `python -m`: modules beside the user count.
    if "" not in sys.path and str(os.curdir) not in sys.path:
        sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"--embedder {name}: there is no module {missing.name!r}",
            hint="run it where the module can be imported, or set PYTHONPATH",
        ) from missing
    except AttributeError as missing:
        raise SettingsError(f"--embedder {name}: {missing}") from missing

    def ask(texts: Sequence[str]) -> list[Vectors]:
        try:
            answers = [function(text) for text in texts] if one_by_one else function(list(texts))
        except (TypeError, ValueError, AttributeError) as problem:
            takes = "a text" if one_by_one else "a list of texts"
            raise RefusedError(
                f"{name} does not take {takes}: {type(problem).__name__}: {problem}",
                hint="" if one_by_one else "for one that takes a single text add --one-by-one",
            ) from problem
        return _vectors(name, answers, len(texts))

    return ask


def _asked(
    url: str, texts: Sequence[str], model: str, key: str | None, *, one_by_one: bool
) -> list[Vectors]:
    groups = [[text] for text in texts] if one_by_one else [list(texts)]
    found: list[Vectors] = []
    for group in groups:
        if url.rstrip("/").endswith("/embed"):
            answer = _post(url, {"inputs": group}, key)
        else:
            address = url.rstrip("/")
            address += "" if address.endswith("/embeddings") else "/embeddings"
            answer = _in_order(url, _post(address, {"input": group, "model": model}, key))
        found += _vectors(url, answer, len(group))
    return found


def _in_order(url: str, answer: object) -> list[object]:
    try:
        items = sorted(answer["data"], key=lambda item: item["index"])  # type: ignore[index]
        return [item["embedding"] for item in items]
    except (KeyError, TypeError) as problem:
        raise RefusedError(
            f"{url} does not answer in OpenAI's form: {type(problem).__name__} {problem}",
            hint="give the address that ends in /v1, or in /embed for Text Embeddings Inference",
        ) from problem


def _post(url: str, body: dict[str, object], key: str | None) -> object:
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    # Only http and https come here.
    asked = request.Request(url, orjson.dumps(body), headers)  # noqa: S310
    try:
        with request.urlopen(asked, timeout=_TIMEOUT_S) as reply:  # noqa: S310
            answer: object = orjson.loads(reply.read())
    except error.HTTPError as refusal:
        said = redacted(refusal.read(500).decode("utf-8", "replace"))
        raise RefusedError(f"{url} answers with status {refusal.code}: {said}") from refusal
    except (OSError, HTTPException) as trouble:
        raise TransientError(
            f"{url} cannot be reached: {trouble}", hint="start the service, then run it again"
        ) from trouble
    except orjson.JSONDecodeError as trouble:
        raise RefusedError(f"{url} does not answer with JSON: {trouble}") from trouble
    return answer


def _vectors(name: str, answer: object, count: int) -> list[Vectors]:
    try:
        rows = [_vector(name, row) for row in answer]  # type: ignore[attr-defined]
    except TypeError as problem:
        raise RefusedError(
            f"{name} gives a {type(answer).__name__} for {number_of(count, 'text')}, not a list of "
            "vectors"
        ) from problem
    if len(rows) != count:
        raise RefusedError(
            f"{name} gives {number_of(len(rows), 'vector')} for {number_of(count, 'text')}",
            hint="for one that takes a single text add --one-by-one",
        )
    return rows


def _vector(name: str, row: object) -> Vectors:
    try:
        vector = np.asarray(row, np.float32)
    except (TypeError, ValueError) as problem:
        raise RefusedError(f"{name} gives something that is no vector: {problem}") from problem
    if vector.ndim != 1 or not len(vector):
        raise RefusedError(
            f"{name} gives an array of shape {vector.shape} for a text, not a vector",
            hint="for one that takes a single text add --one-by-one",
        )
    return vector
