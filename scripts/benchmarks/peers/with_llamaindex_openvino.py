"""LlamaIndex set up by somebody who knows it: the model through OpenVINO, larger batches.

Usage: ``python with_llamaindex_openvino.py CORPUS.jsonl STATE_FOLDER MODEL``

MODEL is a folder that :mod:`export_openvino` made once. 256 texts go to the model at once, which
sorts them by length and computes 8 at a time, its fastest batch on a CPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from langchain_text_splitters import RecursiveCharacterTextSplitter
from llama_index.core import Document
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import LangchainNodeParser
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

WINDOW, BATCH = 256, 8


class LongWindow(HuggingFaceEmbedding):  # type: ignore[misc]  # (not installed here)
    """Hands the model a window of texts and lets it batch them, sorted by length."""

    def _embed(self, inputs: list[Any], prompt_name: str | None = None) -> list[list[float]]:
        vectors = self._model.encode(
            inputs,
            batch_size=BATCH,
            prompt_name=prompt_name,
            normalize_embeddings=self.normalize,
            show_progress_bar=False,
        )
        found: list[list[float]] = vectors.tolist()
        return found


def main() -> None:
    """Load, split, embed, store; keep what was seen for the next run."""
    corpus, state, model = sys.argv[1:]
    documents = [
        Document(text=row["text"], doc_id=row["id"])
        for row in map(json.loads, Path(corpus).read_text("utf-8").splitlines())
    ]
    client = QdrantClient(path=f"{state}/qdrant")
    pipeline = IngestionPipeline(
        transformations=[
            LangchainNodeParser(RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=0)),
            LongWindow(
                model_name=model,
                backend="openvino",
                model_kwargs={"file_name": "openvino_model.xml"},
                embed_batch_size=WINDOW,
            ),
        ],
        vector_store=QdrantVectorStore(client=client, collection_name="bench", batch_size=WINDOW),
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS,
        # What it caches by is kept in one JSON file that is rewritten at every run.
        disable_cache=True,
    )
    seen = f"{state}/pipeline"
    if Path(seen).exists():
        pipeline.load(seen)
    pipeline.run(documents=documents)
    pipeline.persist(seen)
    client.close()


if __name__ == "__main__":
    main()
