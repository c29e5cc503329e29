"""All gates of one version, in order: the cheap ones about its bookkeeping, then its quality."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from embedmill.assembly import workspace_of
from embedmill.chunk_sample import sampled_chunks
from embedmill.gate import GateResult
from embedmill.gates.bookkeeping import (
    applied_gate,
    books_of,
    dead_letters_gate,
    records_gate,
    store_ready_gate,
)
from embedmill.gates.labelled import labelled_gate
from embedmill.gates.neighbours import neighbours_gate
from embedmill.gates.self_retrieval import self_retrieval_gates
from embedmill.gates.stored_vectors import (
    contract_gate,
    read_back_gate,
    reembedding_gate,
    vector_health_gate,
)
from embedmill.gates.subject import Subject
from embedmill.manifest import IndexVersion
from embedmill.settings import Settings
from embedmill.vector_store import VectorStore


def run_gates(
    settings: Settings,
    candidate: IndexVersion,
    published: IndexVersion | None,
    store: VectorStore,
    *,
    on_gate: Callable[[str], None] = lambda _: None,
) -> tuple[GateResult, ...]:
    """Hold a version against everything that speaks for or against it.

    Reads the workspace and the store; changes neither, but keeps the query contract where there is
    none. Loads the model of the candidate, and that of the published version where both are
    compared by queries. Memory is bounded by the sample.

    Args:
        settings: of the index; ``settings.gates`` has the thresholds.
        candidate: that is to be published; all its segments should be applied.
        published: that readers see now, or None; compared with where it is another version.
        store: open; holds the collections of both.
        on_gate: told the name of each gate before it is run.

    Returns:
        Every gate's result, in a fixed order. A version is fit to be published when all of them
        ``passed``; a gate that has nothing to measure says ``not-applicable``.

    Raises:
        RefusedError: the collection or the model is not there.
        TransientError: the store or the provider could not be asked; ask again later.
    """
    workspace = workspace_of(settings)
    subject = Subject(settings, workspace, candidate, store)
    rival = None
    if published is not None and published.number != candidate.number:
        rival = Subject(settings, workspace, published, store)
    try:
        return tuple(_results(subject, rival, on_gate))
    finally:
        for each in (subject, rival):
            if each is not None:
                each.close()


def _results(
    subject: Subject, rival: Subject | None, on_gate: Callable[[str], None]
) -> Iterator[GateResult]:
    on_gate("applied")
    books = books_of(subject)
    yield applied_gate(books)
    on_gate("store-ready")
    yield store_ready_gate(subject)
    on_gate("records")
    yield records_gate(subject, books)
    on_gate("dead-letters")
    yield dead_letters_gate(subject, books)
    on_gate("read-back")
    sample = sampled_chunks(
        subject.chunks, subject.vectors, subject.applied, subject.settings.gates.sample
    )
    yield read_back_gate(subject, sample)
    on_gate("vector-health")
    yield vector_health_gate(subject, sample)
    on_gate("re-embedding")
    reembedded = reembedding_gate(subject, sample)
    yield reembedded
    on_gate("query-contract")
    yield contract_gate(subject, may_begin=reembedded.passed)
    on_gate("self-retrieval")
    yield from self_retrieval_gates(subject, rival, sample)
    on_gate("neighbours")
    yield neighbours_gate(subject, rival, sample)
    on_gate("queries")
    yield labelled_gate(subject, rival)
