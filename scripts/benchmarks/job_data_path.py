"""The data path of an embedding job, without the network: ours, and the straightforward loop."""

from __future__ import annotations

import base64
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from embedmill.batch_providers.openai_limits import OPENAI_LIMITS, request_template
from embedmill.batch_providers.openai_results import lines_of, outcomes_of
from embedmill.embedder import Vectors
from embedmill.job_collecting import collect
from embedmill.job_records import Intent
from embedmill.job_requests import Request, Requests, custom_id
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.request_file import RequestWriter, require_clean
from embedmill.segment import SegmentKey
from embedmill.testing.fake_vectors import vectors_for
from embedmill.testing.openai_account import ServerOptions
from embedmill.testing.openai_embeddings import reply_body

_SEGMENT_ROWS = 1_000
# As the product reads a download.
_CHUNK = 1 << 20
_SETTINGS = OpenAIEmbedderSettings(kind="openai", api_key="${OPENAI_API_KEY}")
_RECIPE = openai_recipe(_SETTINGS, "cosine")
_TOKENS = 150


@dataclass(frozen=True, slots=True)
class Times:
    """Processor seconds of one way; medians.

    Attributes:
        build: of the file of requests, checked line by line where that is part of the way.
        parse: of the results, to vectors that stand alone.
        hand_over: parsing and arrays in the order of the rows, segment by segment.
    """

    build: float
    parse: float
    hand_over: float

    @property
    def whole(self) -> float:
        """From texts to arrays."""
        return self.build + self.hand_over


class DataPath:
    """Some rows, their file of requests, and their results as a provider sends them."""

    def __init__(self, texts: list[str], folder: Path) -> None:
        """Make the results; the provider shuffles them."""
        self.texts = texts
        self.folder = folder
        self.requests: list[Request] = [
            ((SegmentKey(0, row // _SEGMENT_ROWS), row % _SEGMENT_ROWS),)
            for row in range(len(texts))
        ]
        self.ids = [custom_id(request) for request in self.requests]
        order = np.random.default_rng(1).permutation(len(texts)).tolist()
        for form in ("base64", "float"):
            with self.results(form).open("wb") as file:
                file.writelines(self._line(row, form) for row in order)

    def results(self, form: str) -> Path:
        """The file of results with vectors as base64 or as lists of numbers."""
        return self.folder / f"results-{form}.jsonl"

    def _line(self, row: int, form: str) -> bytes:
        asked = {"model": _RECIPE.model, "encoding_format": form}
        body = reply_body(asked, [self.texts[row]], _TOKENS, ServerOptions())
        response = {"status_code": 200, "request_id": f"req_{row:08d}", "body": body}
        line = {"id": f"batch_req_{row:08d}", "custom_id": self.ids[row], "response": response}
        # The provider writes a blank after colons.
        return json.dumps({**line, "error": None}).encode() + b"\n"

    # Ours: what the product does between texts and arrays, but for the network.

    def build(self) -> None:
        """Write and check a file of requests."""
        template = request_template(_RECIPE)
        path = self.folder / "ours.jsonl"
        with RequestWriter(path, job_key="", template=template, limits=OPENAI_LIMITS) as writer:
            for name, text in zip(self.ids, self.texts, strict=True):
                writer.add(name, [text], [_TOKENS])
            writer.finish()
        require_clean(path, template, OPENAI_LIMITS)

    def parse(self, form: str) -> None:
        """Read every vector."""
        for outcome in self._outcomes(form):
            assert outcome.vector is not None

    def hand_over(self, form: str) -> None:
        """Read every vector, and hand over checked arrays, segment by segment."""
        intent = Intent(
            "bench", datetime(2026, 1, 1, tzinfo=UTC), "", Requests.of(self.requests), 0, 0, 0
        )
        with collect(
            intent,
            self._outcomes(form),
            dimension=_RECIPE.dimension,
            canaries=None,
            scratch=self.folder,
        ) as collected:
            assert not collected.problem
            rows = sum(len(vectors) for _, _, vectors in collected.segments())
        assert rows == len(self.texts)

    def _outcomes(self, form: str) -> Iterator[Any]:
        return chain.from_iterable(
            outcomes_of(lines, _RECIPE) for lines in lines_of(_chunks(self.results(form)))
        )

    # The straightforward loop.

    def plain_build(self) -> None:
        """One ``json.dumps`` a row."""
        body = {"model": _RECIPE.model, "encoding_format": "float"}
        with (self.folder / "plain.jsonl").open("w") as file:
            for name, text in zip(self.ids, self.texts, strict=True):
                line = {"custom_id": name, "method": "POST", "url": "/v1/embeddings"}
                file.write(json.dumps({**line, "body": {**body, "input": [text]}}) + "\n")

    def plain_parse(self, form: str) -> dict[str, Any]:
        """One ``json.loads`` a row."""
        vectors: dict[str, Any] = {}
        with self.results(form).open() as file:
            for line in file:
                record = json.loads(line)
                if record["error"] is None and record["response"]["status_code"] == 200:
                    vector = record["response"]["body"]["data"][0]["embedding"]
                    vectors[record["custom_id"]] = (
                        vector if form == "float" else _plain_vector(vector)
                    )
        return vectors

    def plain_hand_over(self, form: str) -> Vectors:
        """An array in the order of the rows."""
        vectors = self.plain_parse(form)
        return np.array([vectors[name] for name in self.ids], np.float32)

    def require_equal(self) -> None:
        """Both ways bring the same vectors."""
        expected = vectors_for(self.texts, _RECIPE.model, _RECIPE.dimension)
        for form in ("base64", "float"):
            assert np.array_equal(self.plain_hand_over(form), expected)
            for outcome in self._outcomes(form):
                row = self.ids.index(outcome.custom_id)
                assert np.array_equal(outcome.vector, expected[row])

    def ours(self, form: str, rounds: int) -> Times:
        """Measure our way."""
        return Times(
            _median(self.build, rounds),
            _median(lambda: self.parse(form), rounds),
            _median(lambda: self.hand_over(form), rounds),
        )

    def plain(self, form: str, rounds: int) -> Times:
        """Measure the straightforward loop."""
        return Times(
            _median(self.plain_build, rounds),
            _median(lambda: self.plain_parse(form), rounds),
            _median(lambda: self.plain_hand_over(form), rounds),
        )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _plain_vector(text: str) -> Vectors:
    return np.frombuffer(base64.b64decode(text), "<f4")


def _median(work: Callable[[], object], rounds: int) -> float:
    """Processor seconds of one thread: what other processes do meanwhile counts for little."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def made_up_texts(count: int, words: int) -> list[str]:
    """Different texts of so many words; the same for the same arguments."""
    dice = np.random.default_rng(7)
    stock = ["".join(dice.choice(list("abcdefghijklmnopqrstuvwxyz"), 5)) for _ in range(5000)]
    picks = dice.integers(0, len(stock), (count, words))
    return [
        f"Passage {number}: " + " ".join(stock[pick] for pick in row)
        for number, row in enumerate(picks)
    ]


def write_rows(path: Path, texts: list[str]) -> None:
    """JSON lines with the columns id and text."""
    with path.open("wb") as file:
        for number, text in enumerate(texts):
            file.write(orjson.dumps({"id": f"d{number:07d}", "text": text}) + b"\n")
