"""Gates about the vectors themselves: read back, healthy, and made by the version's model."""

from __future__ import annotations

import numpy as np

from embedmill.canary import CanaryLayer, compared, embedded_canary
from embedmill.chunk_sample import ChunkSample
from embedmill.embedder import Vectors
from embedmill.gate import GateResult, verdict
from embedmill.gates.subject import Subject
from embedmill.plain_numbers import number_of
from embedmill.query_contract import contract_of, publish_contract
from embedmill.run_context import utc_now
from embedmill.vector_store import VectorBatch

# What a store may do to a vector of norm 1 (rounding, its own normalisation) stays far below.
_TOLERANCE = 1e-3
# Rounding, other processors and other batches stay far above (0.9999); other models do not.
_SAME = 0.99
# Fewer texts say nothing about the whole.
_ENOUGH = 20
# A norm that is said to be 1 may differ by this.
_NORM = 1e-3


def read_back_gate(subject: Subject, sample: ChunkSample) -> GateResult:
    """The sampled records come back as the layers have them."""
    name = "read-back"
    if not len(sample):
        return GateResult(name, "not-applicable", message="the version has no chunks")
    found = subject.store.fetch(subject.version.collection, sample.ids)
    at = {record: row for row, record in enumerate(found.ids)}
    missing = sum(record not in at for record in sample.ids)
    scaled = subject.version.embedding.metric == "cosine"
    other_vectors = other_payloads = 0
    for row, record in enumerate(sample.ids):
        if record in at:
            other_vectors += _moved(found, at[record], sample.vectors[row], scaled=scaled)
            other_payloads += found.payloads[at[record]] != sample.payloads[row]
    figures = {
        "sampled": len(sample),
        "missing": missing,
        "other_vectors": other_vectors,
        "other_payloads": other_payloads,
    }
    wrong = missing + other_vectors + other_payloads
    message = f"{number_of(len(sample), 'record')} came back as sent"
    if wrong:
        message = (
            f"of {number_of(len(sample), 'record')} {missing} are missing, {other_vectors} have "
            f"another vector, {other_payloads} another payload; put it right with: embedmill audit "
            "--repair -c SETTINGS"
        )
    return GateResult(name, verdict(good=not wrong), figures, {}, message)


def _moved(found: VectorBatch, row: int, expected: Vectors, *, scaled: bool) -> bool:
    stored = found.vectors[row]
    if scaled:
        # Under cosine a store may give a vector back with norm 1.
        stored, expected = _unit(stored), _unit(expected)
    return not float(np.abs(stored - expected).max()) <= _TOLERANCE


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
    scaled: Vectors = (vectors / np.where(norms > 0, norms, 1.0)).astype(np.float32)
    return scaled


def vector_health_gate(subject: Subject, sample: ChunkSample) -> GateResult:
    """Vectors are finite, have the norm that the recipe says, and differ as their texts do."""
    limits, health = subject.settings.gates, sample.health
    if not health.rows:
        return GateResult("vector-health", "not-applicable", message="the version has no chunks")
    mean = _mean_cosine(sample)
    equal = health.shared / health.compared if health.compared >= _ENOUGH else 0.0
    off = health.rows > health.broken and max(
        abs(health.least_norm - 1), abs(health.largest_norm - 1)
    )
    problems = []
    if health.broken:
        problems.append(f"not finite, or zero: {number_of(health.broken, 'vector')}")
    if subject.version.embedding.normalise and off > _NORM:
        problems.append(f"norms from {health.least_norm:.4f} to {health.largest_norm:.4f}, not 1")
    if mean is not None and not mean <= limits.max_mean_cosine:
        problems.append(f"the vectors have collapsed: different texts have cosine {mean:.4f}")
    if equal > limits.max_equal_vectors:
        problems.append(f"{equal:.1%} of the chunks share their vector with another text")
    figures = {
        "looked_at": health.rows,
        "broken": health.broken,
        "least_norm": round(health.least_norm, 6) if health.largest_norm else 0.0,
        "largest_norm": round(health.largest_norm, 6),
        "equal_vectors": round(equal, 6),
        **({} if mean is None else {"mean_cosine": round(mean, 6)}),
    }
    thresholds = {
        "max_mean_cosine": limits.max_mean_cosine,
        "max_equal_vectors": limits.max_equal_vectors,
    }
    message = f"{number_of(health.rows, 'vector')}: finite, different"
    if problems:
        message = "; ".join(problems) + ". Look at the model before anything else"
    return GateResult("vector-health", verdict(good=not problems), figures, thresholds, message)


def _mean_cosine(sample: ChunkSample) -> float | None:
    """Mean cosine between sampled chunks of different texts; None for too few."""
    first = {" ".join(text.casefold().split()): row for row, text in enumerate(sample.texts)}
    finite = np.asarray(np.isfinite(sample.vectors).all(axis=1))
    rows = [row for row in sorted(first.values()) if finite[row]]
    if len(rows) < _ENOUGH:
        return None
    vectors = _unit(sample.vectors[rows]).astype(np.float64)
    count = len(rows)
    # The sum over all pairs is the square of the sum.
    total = float((vectors.sum(axis=0) ** 2).sum()) - float((vectors**2).sum())
    return total / (count * (count - 1))


def reembedding_gate(subject: Subject, sample: ChunkSample) -> GateResult:
    """The version's model makes the stored vectors again of the sampled texts."""
    name, least = "re-embedding", subject.settings.gates.min_reembedded
    if not len(sample):
        return GateResult(name, "not-applicable", message="the version has no chunks")
    cosines, failed = _again(subject, sample)
    share = float(np.mean(cosines >= _SAME)) if len(cosines) else 0.0
    figures = {
        "sampled": len(sample),
        "failed": failed,
        "least_cosine": round(float(cosines.min()), 6) if len(cosines) else 0.0,
        "median_cosine": round(float(np.median(cosines)), 6) if len(cosines) else 0.0,
        "share": round(share, 6),
    }
    message = f"the model makes {share:.1%} of the sampled vectors again"
    if share < least:
        message += (
            ": the stored ones are mixed up, or were made by another model or with another prompt; "
            "build the version anew with: embedmill reembed SETTINGS"
        )
    thresholds = {"min_reembedded": least, "cosine": _SAME}
    return GateResult(name, verdict(good=share >= least), figures, thresholds, message)


def _again(subject: Subject, sample: ChunkSample) -> tuple[Vectors, int]:
    """Cosines of the stored vectors with those made now, and how many texts failed."""
    cosines = []
    failed = 0
    for start in range(0, len(sample), 64):
        embedded = subject.embedder.embed(sample.texts[start : start + 64], "document")
        good = [row for row in range(len(embedded.vectors)) if row not in embedded.failures]
        stored = sample.vectors[[start + row for row in good]]
        cosines.append((_unit(embedded.vectors[good]) * _unit(stored)).sum(axis=1))
        failed += len(embedded.failures)
    # A stored vector that is not finite is like none.
    return np.nan_to_num(np.concatenate(cosines), nan=0.0), failed


def contract_gate(subject: Subject, *, may_begin: bool) -> GateResult:
    """The model embeds the fixed texts as it did when the version began; its contract stands.

    A version that was built before there were contracts gets one here.

    Args:
        subject: the candidate.
        may_begin: the model is known to be the one that made the version's vectors.
    """
    name, least = "query-contract", subject.settings.gates.min_canary_cosine
    layer = CanaryLayer(subject.workspace, subject.settings.index)
    now = embedded_canary(
        subject.embedder, subject.settings.embedder.model_dump(mode="json"), utc_now()
    )
    then = layer.read(subject.version.embedding)
    if then is None and not may_begin:
        message = "the version has no contract, and the model is not the one that made its vectors"
        return GateResult(name, "not-applicable", message=message)
    then = then or layer.keep(now)
    cosines = compared(then, now)
    worst = min(cosines.values(), default=0.0)
    good = worst >= least
    if good:
        contract = contract_of(subject.workspace, subject.settings.index, subject.version)
        message = f"queries are embedded as in {publish_contract(subject.workspace, contract)}"
    else:
        message = (
            "the model has changed behind its name since the version began; put it back, or build "
            "a new version with: embedmill reembed SETTINGS"
        )
    figures = {"least_cosine": round(worst, 6), "texts": len(cosines)}
    thresholds = {"min_canary_cosine": least}
    return GateResult(name, verdict(good=good), figures, thresholds, message)
