"""LangChain as its documentation keeps an index in step with its source: the indexing API.

Usage: ``python with_langchain.py CORPUS.jsonl STATE_FOLDER MODEL``

``cleanup="full"``, since every run sees the whole source; ``incremental`` would embed some chunks
again that did not change, where those of one document lie in two of its batches.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from langchain_classic.indexes import SQLRecordManager
from langchain_core.documents import Document
from langchain_core.indexing import index
from langchain_huggingface import HuggingFaceEmbeddings
from langchain_qdrant import QdrantVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, VectorParams


def main() -> None:
    """Load, split, and let the indexing API embed and store what is new."""
    corpus, state, model = sys.argv[1:]
    documents = [
        Document(page_content=row["text"], metadata={"source": row["id"]})
        for row in map(json.loads, Path(corpus).read_text("utf-8").splitlines())
    ]
    splitter = RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=0)
    client = QdrantClient(path=f"{state}/qdrant")
    if not client.collection_exists("bench"):
        client.create_collection(
            "bench", vectors_config=VectorParams(size=384, distance=Distance.COSINE)
        )
    store = QdrantVectorStore(client, "bench", embedding=HuggingFaceEmbeddings(model_name=model))
    records = SQLRecordManager("qdrant/bench", db_url=f"sqlite:///{state}/records.sqlite")
    records.create_schema()
    index(
        splitter.split_documents(documents),
        records,
        store,
        cleanup="full",
        source_id_key="source",
        key_encoder="sha1",
    )
    client.close()


if __name__ == "__main__":
    main()
