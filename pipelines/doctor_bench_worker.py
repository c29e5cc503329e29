"""One process of the doctor's bench: loads a model, embeds when it is told to, prints its figures.

Usage: ``python -m pipelines.doctor_bench_worker SETTINGS``; then one round for each line of input.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import orjson
import psutil

from embedmill.embedders.local import LocalEmbedder
from embedmill.embedders.local_recipe import local_recipe
from embedmill.embedders.model_files import describe_model
from embedmill.embedders.model_location import locate_model
from embedmill.errors import EmbedmillError
from embedmill.local_models.self_check import least_cosine
from embedmill.settings import SentenceTransformersSettings

# Words that stand for as many tokens in most vocabularies.
_WORDS = ("the", "river", "carries", "sand", "to", "a", "wide", "sea", "where", "ships", "wait")
_TEXTS, _SHORTEST, _LONGEST = 48, 60, 240


def main() -> None:
    """Load, say so, then embed once for each line of standard input."""
    try:
        embedder, cosine = _load(sys.argv[1])
    except EmbedmillError as error:
        _print({"error": str(error)})
        return
    texts = bench_texts()
    embedder.embed(texts[:8], "document")
    _print({"texts": len(texts), "cosine": cosine})
    for _ in sys.stdin:
        start, cpu = time.time(), time.process_time()
        embedder.embed(texts, "document")
        _print(
            {
                "start": start,
                "end": time.time(),
                "cpu_s": time.process_time() - cpu,
                "memory": psutil.Process().memory_info().rss,
            }
        )


def bench_texts() -> list[str]:
    """As long as chunks are, in every length between; the same on every machine."""
    step = (_LONGEST - _SHORTEST) / (_TEXTS - 1)
    lengths = [round(_SHORTEST + step * ((17 * number) % _TEXTS)) for number in range(_TEXTS)]
    return [
        " ".join(_WORDS[(number + 5 * place) % len(_WORDS)] for place in range(length))
        for number, length in enumerate(lengths)
    ]


def _load(settings_json: str) -> tuple[LocalEmbedder, float]:
    settings = SentenceTransformersSettings.model_validate_json(settings_json)
    recipe = local_recipe(settings, "cosine")
    embedder = LocalEmbedder(settings, recipe)
    description = describe_model(locate_model(settings), settings)
    return embedder, least_cosine(embedder.model, description, recipe)


def _print(record: Mapping[str, object]) -> None:
    print(orjson.dumps(record).decode(), flush=True)  # noqa: T201 (read by the bench)


if __name__ == "__main__":
    main()
