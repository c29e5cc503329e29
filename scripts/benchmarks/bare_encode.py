"""The model alone, in a process of its own; prints the time of one ``encode`` as a line of JSON.

Usage: ``python -m benchmarks.bare_encode SETTINGS.json TEXTS.json THREADS BATCH``

Loads the very weights, dtype and prompt that the settings name and encodes the texts in one call,
as a person would who has nothing but sentence-transformers. Not counted: imports, loading, and a
first call that warms the model up.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import orjson
import torch
from sentence_transformers import SentenceTransformer

from embedmill.assembly import recipes_of
from embedmill.embedders.model_location import locate_model
from embedmill.settings import SentenceTransformersSettings, Settings


def main() -> None:
    """Load, warm up, encode, say how long that took."""
    file, texts_file, threads, batch = sys.argv[1:]
    settings = Settings.model_validate_json(Path(file).read_bytes())
    texts = orjson.loads(Path(texts_file).read_bytes())
    assert isinstance(settings.embedder, SentenceTransformersSettings)
    recipe = recipes_of(settings)[1]
    torch.set_num_threads(int(threads))
    before = time.perf_counter()
    model = SentenceTransformer(
        str(locate_model(settings.embedder).directory),
        device=None if settings.embedder.device == "auto" else settings.embedder.device,
        local_files_only=True,
        model_kwargs={"dtype": getattr(torch, recipe.dtype)},
    )
    model.max_seq_length = recipe.max_tokens
    loaded = time.perf_counter()
    options: dict[str, Any] = {
        "batch_size": int(batch),
        "prompt": recipe.document_prompt or None,
        "normalize_embeddings": recipe.normalise,
        "show_progress_bar": False,
    }
    model.encode(texts[:: max(1, len(texts) // 64)], **options)
    start, cpu = time.perf_counter(), time.process_time()
    vectors = model.encode(texts, **options)
    answer = {
        "encode_s": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu,
        "load_s": loaded - before,
        "vectors": len(vectors),
    }
    print(orjson.dumps(answer).decode())


if __name__ == "__main__":
    main()
