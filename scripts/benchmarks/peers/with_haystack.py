"""Haystack as its documentation builds an indexing pipeline, with a cache in front.

Usage: ``python with_haystack.py CORPUS.jsonl STATE_FOLDER MODEL``

What is in the store with the same content is left out; chunks of documents that changed are deleted
first. The separators are its own but for sentences, which need a download.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from haystack import Document, Pipeline
from haystack.components.preprocessors import RecursiveDocumentSplitter
from haystack.components.writers import DocumentWriter
from haystack.document_stores.types import DuplicatePolicy
from haystack_integrations.components.embedders.sentence_transformers import (
    SentenceTransformersDocumentEmbedder,
)
from haystack_integrations.document_stores.qdrant import QdrantDocumentStore


def main() -> None:
    """Load, leave out what is cached, split, embed, write."""
    corpus, state, model = sys.argv[1:]
    documents = {}
    for row in map(json.loads, Path(corpus).read_text("utf-8").splitlines()):
        digest = hashlib.sha256(f"{row['id']}\n{row['text']}".encode()).hexdigest()
        meta = {"source": row["id"], "digest": digest}
        documents[digest] = Document(content=row["text"], meta=meta)
    store = QdrantDocumentStore(
        path=f"{state}/qdrant", index="bench", embedding_dim=384, progress_bar=False
    )
    # One call: the cache checker makes one for each, and a local store reads everything each time.
    known = {stored.meta["digest"] for stored in store.filter_documents()}
    missing = [document for digest, document in documents.items() if digest not in known]
    if missing:
        sources = [document.meta["source"] for document in missing] if known else []
        store.delete_by_filter({"field": "meta.source", "operator": "in", "value": sources})
        pipeline = Pipeline()
        splitter = RecursiveDocumentSplitter(
            split_length=1000, split_unit="char", separators=["\n\n", "\n", " "]
        )
        embedder = SentenceTransformersDocumentEmbedder(model=model, progress_bar=False)
        pipeline.add_component("splitter", splitter)
        pipeline.add_component("embedder", embedder)
        pipeline.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
        pipeline.connect("splitter", "embedder")
        pipeline.connect("embedder", "writer")
        pipeline.run({"splitter": {"documents": missing}})
    store.close()


if __name__ == "__main__":
    main()
