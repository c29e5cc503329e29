"""LlamaIndex as its documentation builds an ingestion pipeline that skips what it has seen.

Usage: ``python with_llamaindex.py CORPUS.jsonl STATE_FOLDER MODEL``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from langchain_text_splitters import RecursiveCharacterTextSplitter
from llama_index.core import Document
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import LangchainNodeParser
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient


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
            HuggingFaceEmbedding(model_name=model),
        ],
        vector_store=QdrantVectorStore(client=client, collection_name="bench"),
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS,
    )
    seen = f"{state}/pipeline"
    if Path(seen).exists():
        pipeline.load(seen)
    pipeline.run(documents=documents)
    pipeline.persist(seen)
    client.close()


if __name__ == "__main__":
    main()
