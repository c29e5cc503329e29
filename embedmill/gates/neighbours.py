"""The gate about neighbours: does a chunk have some of the company that it had before?"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from embedmill.bootstrap import mean_interval
from embedmill.chunk_sample import ChunkSample
from embedmill.document import record_id
from embedmill.embedder import Vectors
from embedmill.gate import GateResult, verdict
from embedmill.gates.self_retrieval import known_rows
from embedmill.gates.subject import Subject

_K = 10
# Chunks whose neighbours are compared; two searches each.
_MOST = 100


def neighbours_gate(subject: Subject, published: Subject | None, sample: ChunkSample) -> GateResult:
    """Sampled chunks share neighbours between the two versions; no model is asked.

    Different models agree on a third to two thirds of ten neighbours; mixed-up vectors on none.
    """
    name, least = "neighbours", subject.settings.gates.min_neighbour_overlap
    if published is None:
        return GateResult(name, "not-applicable", message="there is no other published version")
    whole = subject.version.chunking != published.version.chunking
    rows = known_rows(published, sample, whole=whole)[:_MOST]
    if not rows:
        message = f"{published.version.name} has none of the sampled chunks"
        return GateResult(name, "not-applicable", message=message)
    overlaps = [
        overlap
        for row in rows
        if (overlap := _overlap(subject, published, sample, row, whole=whole)) is not None
    ]
    if not overlaps:
        return GateResult(name, "not-applicable", message="the sampled chunks have no neighbours")
    mean = sum(overlaps) / len(overlaps)
    low, high = mean_interval(overlaps)
    figures = {
        "compared": len(overlaps),
        "overlap": round(mean, 6),
        "overlap_low": round(low, 6),
        "overlap_high": round(high, 6),
    }
    message = f"{mean:.1%} of a chunk's ten neighbours are those of {published.version.name}"
    if mean < least:
        message += ": too few for a better model; the vectors may be mixed up"
    thresholds = {"min_neighbour_overlap": least}
    return GateResult(name, verdict(good=mean >= least), figures, thresholds, message)


def _overlap(
    subject: Subject, published: Subject, sample: ChunkSample, row: int, *, whole: bool
) -> float | None:
    """Share of neighbours in common; None for a chunk without any."""
    doc_id = sample.payloads[row]["doc_id"]
    index = 0 if whole else sample.payloads[row]["chunk_index"]
    before = _neighbours(published, doc_id, index, whole=whole)
    now = _neighbours(subject, doc_id, index, whole=whole)
    possible = min(len(before), len(now))
    return len(before & now) / possible if possible else None


def _neighbours(subject: Subject, doc_id: str, index: int, *, whole: bool) -> AbstractSet[str]:
    """The ten nearest other chunks, or other documents, of a stored chunk."""
    record = record_id(doc_id, index)
    stored = subject.store.fetch(subject.version.collection, [record])
    if not stored.ids:
        return set()
    vector: Vectors = stored.vectors[0]
    hits = subject.search(vector, 3 * _K if whole else _K + 1)
    if whole:
        others = dict.fromkeys(str(hit.payload.get("doc_id")) for hit in hits)
        others.pop(doc_id, None)
        return set(list(others)[:_K])
    return {str(hit.id) for hit in hits if hit.id != record}
