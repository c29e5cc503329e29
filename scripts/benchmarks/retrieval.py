"""Does an index that the product built find what people judged relevant?

Ingests a corpus, one chunk per document (what exceeds the model's window is cut), searches every
judged query with the product's own reader and prints nDCG@10, recall@10 and recall@100 by the
conventions of BEIR and trec_eval. Fails when nDCG@10 is below the minimum.

Files as in BEIR: the corpus and the queries are JSON lines, the judgements are tab-separated
(query, document, grade), with or without a line of column names.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.figures import verdict
from benchmarks.ingesting import (
    MINILM,
    add_corpus,
    corpus_source,
    existing_file,
    ingested,
    parser,
    scratch,
    settings_in,
)
from embedmill.index_reader import IndexReader, open_index
from embedmill.judgements import read_judgements, read_queries
from embedmill.ranking import distinct, ndcg, recall

_DEPTH = 100


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=3600)
    add_corpus(made)
    made.add_argument(
        "--queries",
        type=existing_file,
        required=True,
        help="JSON lines with query_id (or _id) and text",
    )
    made.add_argument(
        "--qrels", type=existing_file, required=True, help="query, document, grade; tabs"
    )
    made.add_argument(
        "--model", default=MINILM["model"], help="of sentence_transformers (default %(default)s)"
    )
    made.add_argument("--backend", default="auto", help="embedder.backend (default %(default)s)")
    made.add_argument("--dtype", default="auto", help="embedder.dtype (default %(default)s)")
    made.add_argument(
        "--minimum", type=float, default=0.640, help="of nDCG@10 (default %(default).3f)"
    )
    options = made.parse_args()
    with scratch() as folder:
        return measure(options, folder)


def measure(options: argparse.Namespace, folder: Path) -> int:
    """Ingest, search, score; return the exit status."""
    judged = read_judgements(options.qrels)
    queries = {name: text for name, text in read_queries(options.queries).items() if name in judged}
    settings = settings_in(
        folder,
        corpus_source(options, separator=" "),
        chunker={"kind": "document", "overflow": "truncate"},
        embedder={
            **MINILM,
            "model": options.model,
            "backend": options.backend,
            "dtype": options.dtype,
        },
    )
    run = ingested(settings, folder, executor="ray", timeout_s=options.timeout)
    chunks = run.report.chunks
    print(f"{run.report.documents.read:,} documents, {run.report.documents.dead} dead; ", end="")
    print(f"{chunks.truncated:,} cut at the model's window; ingested in {run.seconds:.0f} s")
    with open_index(settings) as reader:
        before = time.perf_counter()
        rankings = {name: ranking(reader, text) for name, text in queries.items()}
        each = (time.perf_counter() - before) / max(1, len(rankings))
    print(f"{len(rankings):,} judged queries, {1000 * each:.1f} ms each, one after the other")
    scores = {
        "nDCG@10": mean(ndcg(found, judged[name], 10) for name, found in rankings.items()),
        "recall@10": mean(recall(found, judged[name], 10) for name, found in rankings.items()),
        "recall@100": mean(recall(found, judged[name], 100) for name, found in rankings.items()),
    }
    for name, score in scores.items():
        print(f"{name:11} {score:.4f}")
    return verdict(
        good=scores["nDCG@10"] >= options.minimum,
        what=f"nDCG@10 {scores['nDCG@10']:.4f}, the minimum is {options.minimum:.3f}",
    )


def ranking(reader: IndexReader, query: str) -> list[str]:
    """The nearest documents, best first, each once.

    Asks for more chunks while several of them are of the same document.
    """
    k = _DEPTH
    while True:
        hits = reader.search(query, k)
        names = distinct(str(hit.payload["doc_id"]) for hit in hits)
        if len(names) >= _DEPTH or len(hits) < k:
            return names[:_DEPTH]
        k *= 2


def mean(values: Iterable[float]) -> float:
    """The mean; 0 of nothing."""
    found = list(values)
    return statistics.fmean(found) if found else 0.0


if __name__ == "__main__":
    sys.exit(main())
