"""Gates about finding: is a chunk found by a part of its own text, and for every tenant?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embedmill.bootstrap import mean_interval
from embedmill.chunk_sample import ChunkSample
from embedmill.document import record_id
from embedmill.gate import GateResult, verdict
from embedmill.gates.subject import Subject, why_no_queries
from embedmill.payload import Payload
from embedmill.vector_store import Hit

_K = 10
# Of a query: people write about as many, and more would find anything in any version.
_MOST_WORDS = 16
# Of a text that is cut at the window of a model; the shortest window there is has twice as many.
_SEEN_WORDS = 40
# Fewer chunks of a tenant say nothing about it.
_ENOUGH = 10


def middle_of(text: str) -> str:
    """The middle half of a text's words, at most 16; all of a text of fewer than four."""
    words = list(re.finditer(r"\S+", text))
    if len(words) < 4:
        return text
    left_out = max(len(words) // 4, (len(words) - _MOST_WORDS) // 2)
    inner = words[left_out : len(words) - left_out][:_MOST_WORDS]
    return text[inner[0].start() : inner[-1].end()]


def asked_for(payload: Payload) -> str:
    """The words that a chunk is searched by: what a model with a short window sees as well."""
    text = str(payload["text"])
    if payload.get("truncated"):
        text = " ".join(text.split()[:_SEEN_WORDS])
    return middle_of(text)


@dataclass(frozen=True, slots=True)
class Found:
    """At which place each sampled chunk was found, 0 for not among the first ten.

    Attributes:
        places: by row of the sample; None where its query could not be embedded.
    """

    places: Sequence[int | None]

    def among(self, rows: Sequence[int], k: int = _K) -> float:
        """Share of some rows that are among the first ``k``; what cannot be asked is not found."""
        found = (self.places[row] or _K + 1 for row in rows)
        return sum(place <= k for place in found) / len(rows) if rows else 0.0

    @property
    def reciprocal(self) -> float:
        """Mean of 1 over the place."""
        return sum(1 / place for place in self.places if place) / max(1, len(self.places))


def found_by_parts(subject: Subject, sample: ChunkSample, *, whole_documents: bool) -> Found:
    """Search for each sampled chunk by some words from the middle of its text.

    Args:
        subject: that is searched.
        sample: of the candidate; the subject may be another version.
        whole_documents: any chunk of the document will do; for versions that are cut differently.
    """
    places: list[int | None] = []
    vectors = subject.queries([asked_for(payload) for payload in sample.payloads])
    for row, vector in enumerate(vectors):
        if vector is None:
            places.append(None)
            continue
        hits = subject.search(vector, _K)
        at = [i for i, hit in enumerate(hits, 1) if _is(hit, sample, row, whole=whole_documents)]
        places.append(at[0] if at else 0)
    return Found(places)


def _is(hit: Hit, sample: ChunkSample, row: int, *, whole: bool) -> bool:
    expected = sample.payloads[row]
    if whole:
        return bool(hit.payload.get("doc_id") == expected["doc_id"])
    # Of equal texts any will do.
    return hit.id == sample.ids[row] or hit.payload.get("text") == expected["text"]


def self_retrieval_gates(
    subject: Subject, published: Subject | None, sample: ChunkSample
) -> tuple[GateResult, GateResult]:
    """Sampled chunks are found by a part of their text, as well as before, in every slice.

    Args:
        subject: the candidate.
        published: what readers see now, or None.
        sample: of the candidate.

    Returns:
        The gate of the whole and that of its slices.
    """
    if not len(sample):
        nothing = "the version has no chunks"
        return (
            GateResult("self-retrieval", "not-applicable", message=nothing),
            GateResult("slices", "not-applicable", message=nothing),
        )
    found = found_by_parts(subject, sample, whole_documents=False)
    return _whole(subject, published, sample, found), _slices(subject, sample, found)


def _whole(
    subject: Subject, published: Subject | None, sample: ChunkSample, found: Found
) -> GateResult:
    limits = subject.settings.gates
    rows = range(len(sample))
    share = found.among(rows)
    figures: dict[str, float | int | str] = {
        "sampled": len(sample),
        "found_first": round(found.among(rows, 1), 6),
        "found_in_ten": round(share, 6),
        "reciprocal_rank": round(found.reciprocal, 6),
    }
    thresholds: dict[str, float | int | str] = {"min_self_retrieval": limits.min_self_retrieval}
    good = share >= limits.min_self_retrieval
    message = f"{share:.1%} of the chunks are found by the words in their middle"
    if not good:
        message += f", {limits.min_self_retrieval:.0%} is asked for"
    if published is not None:
        thresholds["max_self_retrieval_drop"] = limits.max_self_retrieval_drop
        compared, reason = _against(subject, published, sample, found)
        figures |= compared
        if compared:
            delta = float(compared["delta"])
            message += f"; {delta:+.1%} against {published.version.name}"
            # Texts that are all alike are not found in any version.
            usual = float(compared["published_found_in_ten"]) < limits.min_self_retrieval
            good = (good or usual) and delta >= -limits.max_self_retrieval_drop
        else:
            message += f"; not compared with {published.version.name}: {reason}"
    if not good:
        message += ": look at the model and its prompts before anything else"
    return GateResult("self-retrieval", verdict(good=good), figures, thresholds, message)


def _against(
    subject: Subject, published: Subject, sample: ChunkSample, found: Found
) -> tuple[Mapping[str, float | int], str]:
    """How the published version finds the same chunks; nothing, and why, where it cannot tell."""
    whole = subject.version.chunking != published.version.chunking
    rows = known_rows(published, sample, whole=whole)
    if not rows:
        return {}, "it has none of the sampled chunks"
    reason = why_no_queries(published)
    if reason:
        return {}, reason
    shared = sample.take(rows)
    before = found_by_parts(published, shared, whole_documents=whole)
    now = found_by_parts(subject, shared, whole_documents=True) if whole else _of(found, rows)
    deltas = [
        float(bool(place)) - float(bool(earlier))
        for place, earlier in zip(now.places, before.places, strict=True)
    ]
    low, high = mean_interval(deltas)
    return {
        "compared": len(rows),
        "published_found_in_ten": round(before.among(range(len(rows))), 6),
        "delta": round(sum(deltas) / len(deltas), 6),
        "delta_low": round(low, 6),
        "delta_high": round(high, 6),
    }, ""


def _of(found: Found, rows: Sequence[int]) -> Found:
    return Found([found.places[row] for row in rows])


def known_rows(published: Subject, sample: ChunkSample, *, whole: bool) -> list[int]:
    """Rows of the sample whose chunk, or whose document, the published version has as well."""
    ids = [
        record_id(payload["doc_id"], 0 if whole else payload["chunk_index"])
        for payload in sample.payloads
    ]
    fetched = published.store.fetch(published.version.collection, ids)
    texts = {
        record: payload["text"]
        for record, payload in zip(fetched.ids, fetched.payloads, strict=True)
    }
    return [
        row
        for row, record in enumerate(ids)
        if record in texts and (whole or texts[record] == sample.payloads[row]["text"])
    ]


def _slices(subject: Subject, sample: ChunkSample, found: Found) -> GateResult:
    name, limits = "slices", subject.settings.gates
    if limits.slice_by is None:
        return GateResult(name, "not-applicable", message="gates.slice_by names no metadata key")
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for row, payload in enumerate(sample.payloads):
        rows[str(payload["metadata"].get(limits.slice_by, ""))].append(row)
    large = {value: found.among(at) for value, at in rows.items() if len(at) >= _ENOUGH}
    thresholds = {"min_slice_self_retrieval": limits.min_slice_self_retrieval}
    if not large:
        message = (
            f"no value of {limits.slice_by!r} has {_ENOUGH} sampled chunks; raise gates.sample"
        )
        figures: dict[str, float | int | str] = {"values": len(rows)}
        return GateResult(name, "not-applicable", figures, thresholds, message)
    worst = min(sorted(large), key=lambda value: large[value])
    figures = {
        "values": len(rows),
        "judged": len(large),
        "worst": worst,
        "worst_found_in_ten": round(large[worst], 6),
    }
    good = large[worst] >= limits.min_slice_self_retrieval
    message = (
        f"worst of {len(large)} values of {limits.slice_by!r}: {worst!r} with {large[worst]:.1%}"
    )
    return GateResult(name, verdict(good=good), figures, thresholds, message)
