"""The model alone, in processes of its own; prints the time of ``encode`` as a line of JSON.

Usage: ``python -m benchmarks.bare_encode SETTINGS.json TEXTS.json PROCESSES THREADS BATCH``

Loads the very weights, dtype and prompt that the settings name and encodes the texts, as a person
would who has nothing but sentence-transformers: each process its share of the texts in one call.
Not counted: imports, loading, and a first call that warms the model up.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import orjson

# From the first to the last start, so that nobody encodes while another still loads.
_LOADED_WITHIN_S = 600.0


def main() -> None:
    """Load, warm up, encode, say how long that took."""
    processes = int(sys.argv[3])
    # Not forked: torch's threads would not live on in a child.
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    answers = context.SimpleQueue()
    children = [
        context.Process(target=encode, args=(sys.argv[1:], number, barrier, answers))
        for number in range(processes)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        sys.exit("a process of the bare model failed")
    found = [answers.get() for _ in children]
    answer = {
        "encode_s": max(each["end"] for each in found) - min(each["start"] for each in found),
        "cpu_s": sum(each["cpu_s"] for each in found),
        "load_s": max(each["load_s"] for each in found),
        "vectors": sum(each["vectors"] for each in found),
    }
    print(orjson.dumps(answer).decode())


def encode(arguments: list[str], number: int, barrier: Barrier, answers: Any) -> None:  # noqa: ANN401 (a queue without a public type)
    """What one process does; all begin to encode at the same time."""
    file, texts_file, processes, threads, batch = arguments
    texts = orjson.loads(Path(texts_file).read_bytes())[number :: int(processes)]
    before = time.time()
    model, options = load(Path(file), int(threads))
    options["batch_size"] = int(batch)
    loaded = time.time()
    model.encode(texts[:: max(1, len(texts) // 64)], **options)
    barrier.wait(_LOADED_WITHIN_S)
    start, cpu = time.time(), time.process_time()
    vectors = model.encode(texts, **options)
    answers.put(
        {
            "start": start,
            "end": time.time(),
            "cpu_s": time.process_time() - cpu,
            "load_s": loaded - before,
            "vectors": len(vectors),
        }
    )


def load(file: Path, threads: int) -> tuple[Any, dict[str, Any]]:
    """The model that the settings name, and how to call it."""
    import torch
    from sentence_transformers import SentenceTransformer

    from embedmill.assembly import recipes_of
    from embedmill.embedders.model_location import locate_model
    from embedmill.settings import SentenceTransformersSettings, Settings

    settings = Settings.model_validate_json(file.read_bytes())
    assert isinstance(settings.embedder, SentenceTransformersSettings)
    recipe = recipes_of(settings)[1]
    torch.set_num_threads(threads)
    model = SentenceTransformer(
        str(locate_model(settings.embedder).directory),
        device=None if settings.embedder.device == "auto" else settings.embedder.device,
        local_files_only=True,
        model_kwargs={"dtype": getattr(torch, recipe.dtype)},
    )
    model.max_seq_length = recipe.max_tokens
    return model, {
        "prompt": recipe.document_prompt or None,
        "normalize_embeddings": recipe.normalise,
        "show_progress_bar": False,
    }


if __name__ == "__main__":
    main()
