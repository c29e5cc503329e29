"""Ray Data as its documentation embeds a corpus: a split, a class with the model, a writer.

Usage: ``python with_ray_data.py CORPUS.jsonl STATE_FOLDER MODEL``

It keeps no state: every run embeds everything. One actor that uses all cores is its faster layout
here; two actors of one core were slower. The embedded store takes one process only, so that the
driver writes.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import ray
from langchain_text_splitters import RecursiveCharacterTextSplitter
from qdrant_client import QdrantClient
from qdrant_client.models import Batch, Distance, VectorParams

splitter = RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=0)


def split(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Chunks of a document, with ids that are the same in every run."""
    return [
        {"id": str(uuid5(NAMESPACE_URL, f"{row['id']}/{at}")), "doc": row["id"], "text": text}
        for at, text in enumerate(splitter.split_text(row["text"]))
    ]


class Embed:
    """Holds the model."""

    def __init__(self, model: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        # Ray gives an actor of one CPU one thread.
        torch.set_num_threads(os.cpu_count() or 1)
        self._model = SentenceTransformer(model)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Add vectors to a batch."""
        batch["vector"] = self._model.encode(list(batch["text"]), show_progress_bar=False)
        return batch


def main() -> None:
    """Read, split, embed, store."""
    corpus, state, model = sys.argv[1:]
    ray.init(include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    client = QdrantClient(path=f"{state}/qdrant")
    if not client.collection_exists("bench"):
        client.create_collection(
            "bench", vectors_config=VectorParams(size=384, distance=Distance.COSINE)
        )
    chunks = ray.data.read_json(corpus).flat_map(split)
    embedded = chunks.map_batches(
        Embed, fn_constructor_args=(model,), concurrency=1, batch_size=256, num_cpus=1
    )
    for batch in embedded.iter_batches(batch_size=256):
        payloads = [
            {"doc": doc, "text": text}
            for doc, text in zip(batch["doc"], batch["text"], strict=True)
        ]
        vectors = batch["vector"].tolist()
        client.upsert("bench", Batch(ids=list(batch["id"]), vectors=vectors, payloads=payloads))
    client.close()


if __name__ == "__main__":
    main()
